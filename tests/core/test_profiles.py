"""Profiles from calls whose truth is known."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steproute import ConfigError, Profile, Router
from steproute.models import Work
from steproute.profiles import Sample, accuracy, fit_profile, read_profiles, robust, write_profiles

TRUE = Profile(
    latency_s=0.05,
    prefill_tokens_per_s=80,
    prefill_context_s=4e-6,
    decode_tokens_per_s=25,
    decode_context_s=8e-6,
    latency_j=12,
    prefill_j_per_token=0.4,
    prefill_context_j=2e-4,
    decode_j_per_token=3,
    decode_context_j=3e-4,
    load_s=1.5,
    load_j=300,
)
LENGTHS = [(64, 96), (700, 16), (256, 48), (64, 16), (700, 96), (1400, 32), (256, 128), (1400, 16)] * 2


def call(
    prompt: int, completion: int, noise: random.Random | None = None, cold: bool = False, cached: int = 0
) -> Sample:
    def off() -> float:
        return 1.0 if noise is None else noise.uniform(0.97, 1.03)

    time = TRUE.time
    prefill = Work(0, time.prefill, 0, time.prefill_context).amount(prompt, 0, cached) * off()
    decode = Work(0, 0, time.decode, 0, time.decode_context).amount(prompt, completion) * off()
    joules = (TRUE.energy_j(prompt, completion, cached) or 0) * off() + cold * TRUE.load_j
    load = TRUE.load_s if cold else 0.0
    return Sample(prompt, completion, cached, prefill + decode + load + TRUE.latency_s, load, prefill, decode, joules)


def test_the_truth_is_found_in_calls_without_noise():
    samples = [call(64, 16, cold=True), *(call(*pair) for pair in LENGTHS), call(900, 40, cached=600)]
    found = fit_profile(samples)
    for field in TRUE.model_fields_set:
        assert getattr(found, field) == pytest.approx(getattr(TRUE, field), rel=1e-6), field
        low, high = found.intervals[field]
        assert low <= getattr(found, field) * 1.000001
        assert high >= getattr(found, field) * 0.999999


def test_noise_and_a_call_that_another_program_slowed_down():
    noise = random.Random(1)
    samples = [call(*pair, noise) for pair in LENGTHS]
    slow = samples[3]
    samples[3] = replace(
        slow, seconds=5 * slow.seconds, prefill_s=5 * (slow.prefill_s or 0), decode_s=5 * (slow.decode_s or 0)
    )
    found = fit_profile(samples)
    held = [call(*pair) for pair in [(128, 64), (512, 24), (350, 100), (1000, 48)]]
    off, joules = accuracy(found, held), accuracy(found, held, "energy_j")
    assert off is not None
    assert joules is not None
    assert off.median < 0.03
    assert joules.median < 0.02
    assert found.intervals["decode_tokens_per_s"][0] < 25 < found.intervals["decode_tokens_per_s"][1]


def test_a_server_without_phases_and_without_a_meter():
    samples = [Sample(p, c, seconds=0.2 + p / 1000 + c / 50) for p, c in LENGTHS]
    found = fit_profile(samples)
    assert (found.latency_s, found.prefill_tokens_per_s, found.decode_tokens_per_s) == pytest.approx((0.2, 1000, 50))
    assert found.energy is None
    assert accuracy(found, [], "seconds") is None


def test_too_few_calls_are_refused():
    with pytest.raises(ConfigError, match="seen 3 calls; needed: at least 4"):
        fit_profile([call(*pair) for pair in LENGTHS[:3]])
    with pytest.raises(ConfigError, match="of 3 different lengths"):
        fit_profile([call(64, 16)] * 9)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 5), min_size=3, max_size=3).filter(lambda beta: sum(beta) > 0.01), st.integers(0, 99))
def test_non_negative_coefficients_are_recovered(beta, seed):
    import numpy as np

    rows = np.random.default_rng(seed).uniform(0.1, 1, size=(20, 3))
    amounts = rows @ np.array(beta)
    found = robust(rows, amounts)
    assert (found >= 0).all()
    assert rows @ found == pytest.approx(amounts, rel=1e-6)


def test_the_file(tmp_path):
    path = tmp_path / "profiles.yaml"
    write_profiles(path, {"small": TRUE})
    write_profiles(path, {"large": Profile(decode_tokens_per_s=10, source="fitted")})
    found = read_profiles(path)
    assert list(found) == ["small", "large"]
    assert found["small"] == TRUE
    config = tmp_path / "steproute.yaml"
    config.write_text(
        "models:\n- {name: small, price: free}\n- {name: large, price: free, profile: {load_s: 9}}\n"
        "- {name: other, price: free}\nprofiles: profiles.yaml\n"
    )
    pool = Router.from_config(config).pool
    assert [pool[name].profile.load_s for name in pool.names] == [1.5, 9, 0]
    path.write_text("small: {decode_tokens_per_second: 3}")
    with pytest.raises(ConfigError, match=r"profiles\.yaml: Profile: decode_tokens_per_second: unknown name"):
        read_profiles(path)
    path.write_text("- 1")
    with pytest.raises(ConfigError, match="allowed: a mapping from models' names to profiles"):
        read_profiles(path)
    path.write_text("small: {load_s: 3}\nsmall: {load_s: 4}")
    with pytest.raises(ConfigError, match=r"profiles\.yaml: is not YAML \('small' is given twice\)"):
        read_profiles(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_profiles(tmp_path / "none.yaml")


def test_work_by_hand():
    work = Work(1.0, 0.1, 0.5, 0.01, 0.02)
    assert work.amount(10, 4) == pytest.approx(1 + 1 + 2 + 0.01 * 10 * 5 + 0.02 * 4 * 12)
    assert work.amount(10, 4, 6) == pytest.approx(1 + 0.4 + 2 + 0.01 * 4 * 8 + 0.02 * 4 * 12)
    assert work.times(2).amount(10, 4) == pytest.approx(2 * work.amount(10, 4))
