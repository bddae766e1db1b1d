import pytest

from steproute.verify import Sandbox, SandboxLimits

# CPU time decides, not the clock: a busy machine must not change a verdict
QUICK = SandboxLimits(cpu_seconds=1, wall_seconds=60, session_seconds=120, memory_bytes=128 << 20, answer_bytes=4 << 20)


@pytest.fixture(scope="session")
def walled() -> Sandbox:
    """A sandbox with every wall standing and short limits."""
    sandbox = Sandbox(QUICK)
    if not sandbox.safe:
        pytest.skip("bubblewrap does not work on this machine")
    return sandbox


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """The best sandbox of this machine, with short limits."""
    return Sandbox(QUICK)


@pytest.fixture(params=["bwrap", "subprocess"])
def any_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Both ways of running a candidate."""
    if request.param == "bwrap" and not Sandbox().safe:
        pytest.skip("bubblewrap does not work on this machine")
    return Sandbox(QUICK, kind=request.param)
