"""Sessions: what a candidate is given, what comes back, how a session ends."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError

from steproute.verify import CallResult, NotALiteral, Sandbox, SandboxLimits, SandboxUnavailable
from steproute.verify import probe as probing

GONE = CallResult(error="TimeoutError", message="no answer in the time limit")


def test_calls_and_results(any_sandbox):
    with any_sandbox.session("def f(x, y=1):\n    return [x, y]\n") as session:
        assert session.loaded == CallResult("None")
        assert session.call("f(1)").text == "[1, 1]"
        assert session.invoke("f", ("a",), {"y": {1: (2.5,)}}).value == ["a", {1: (2.5,)}]
        assert session.invoke("g") == CallResult(error="NameError", message="name 'g' is not defined")
        assert session.call("g()") == CallResult(error="NameError", message="name 'g' is not defined")
        assert session.call("f(") == CallResult(error="SyntaxError", message="'(' was never closed (<string>, line 1)")
        assert session.ending is None


def test_both_kinds_say_whether_they_are_safe(any_sandbox):
    assert any_sandbox.safe is (any_sandbox.kind == "bwrap")


def test_errors_are_name_and_text(any_sandbox):
    with any_sandbox.session("import sys\nclass Odd(BaseException): pass\n") as session:
        assert session.call("[][1]").failure == "IndexError: list index out of range"
        assert session.call("{}['k']").failure == "KeyError: 'k'"
        assert session.call("sys.exit(3)").failure == "SystemExit: 3"
        session.load("def f(): raise Odd('x' * 1000)")
        assert session.call("f()") == CallResult(error="Odd", message="x" * 500)
        session.load("def r(n): return r(n + 1)")
        assert session.call("r(0)").failure == "RecursionError: maximum recursion depth exceeded"
        assert session.call("1 + 1").text == "2"


def test_syntax_errors_tell_the_line(any_sandbox):
    with any_sandbox.session() as session:
        assert session.syntax("x = 1\ndef f(x)\n    pass").failure == "SyntaxError: expected ':' (line 2)"
        assert session.syntax("def f():\nreturn 1").error == "IndentationError"
        assert session.syntax("x = 1").ok


def test_null_bytes_are_a_syntax_error(any_sandbox):
    with any_sandbox.session() as session:
        assert session.syntax("x = '\0'").error in ("ValueError", "SyntaxError")  # which of them depends on the version


def test_arguments_are_copies(any_sandbox):
    given = [3, 1]
    with any_sandbox.session("def f(x):\n    x.clear()\n    return x\n") as session:
        assert session.invoke("f", (given,)).value == []
    assert given == [3, 1]


@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        -float("inf"),
        1 + 2j,
        b"\xff",
        {1, 2},
        set(),
        "\udc80",
        pytest.param(7**20_000, id="long"),
        {(1,): [None, ...]},
    ],
)
def test_literals_go_there_and_back(any_sandbox, value):
    with any_sandbox.session("def f(x): return x") as session:
        assert session.invoke("f", (value,)).value == value


def test_what_is_no_literal_stays_inside(any_sandbox):
    with any_sandbox.session("def f(): return (x for x in [1])") as session:
        result = session.invoke("f")
        assert result == CallResult(message="generator", opaque=True)
        assert not result.ok
        with pytest.raises(NotALiteral):
            result.value  # noqa: B018
        with pytest.raises(NotALiteral, match="function"):
            session.invoke("f", (lambda: 1,))


@pytest.mark.parametrize("code", ["while True: pass", "import os\nos._exit(0)", "import os\nos.kill(os.getpid(), 9)"])
def test_after_a_hang_or_crash_every_call_says_the_same(any_sandbox, code):
    with any_sandbox.session(code) as session:
        assert session.loaded == GONE
        assert session.call("1") == GONE
        assert session.syntax("1") == GONE
        assert session.ending == ("timeout" if "while" in code else "crash")


def test_waiting_is_bounded_without_cpu_use():
    limits = SandboxLimits(wall_seconds=0.5)
    with Sandbox(limits).session("import time\ntime.sleep(1000)") as session:
        assert session.loaded == GONE
        assert session.ending == "timeout"


def test_sets_print_in_one_order_always(any_sandbox):
    texts = set()
    for _ in range(3):
        with any_sandbox.session() as session:
            texts.add(session.call("set('abcdefgh')").text)
    assert len(texts) == 1


def test_sessions_know_nothing_of_each_other(any_sandbox):
    with any_sandbox.session("x = 1") as one, any_sandbox.session("x = 2") as other:
        one.load("open('left', 'w').write('x')")
        assert (one.call("x").text, other.call("x").text) == ("1", "2")
        assert other.call("__import__('os').path.exists('left')").text == "False"


def test_no_environment(any_sandbox, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    with any_sandbox.session("import os") as session:
        names = session.call("sorted(os.environ)").value
        assert set(names) <= {"PYTHONHASHSEED", "LC_CTYPE", "LD_LIBRARY_PATH", "PWD"}
        everything = "''.join(open(f'/proc/{p}/environ', errors='replace').read() for p in (1, os.getpid()))"
        assert "hunter2" not in session.call(everything).text


def test_no_network(walled):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = server.getsockname()
        with walled.session("import socket") as session:
            result = session.call(f"socket.create_connection({address!r}, timeout=1)")
            assert result.error == "ConnectionRefusedError"
            assert session.call("socket.if_nameindex()").text == "[(1, 'lo')]"
        with pytest.raises(BlockingIOError):
            server.accept()


def test_the_system_is_read_only_and_files_are_small(walled):
    with walled.session("import os\ndef write(path, n):\n    with open(path, 'w') as f: f.write('x' * n)") as session:
        for path in ("/usr/x", "/x", "/dev/x", "/dev/shm/x", sys.base_prefix + "/x", "/proc/sys/kernel/hostname"):
            assert session.invoke("write", (path, 1)).error in ("OSError", "PermissionError", "FileNotFoundError"), path
        name = f"steproute-{os.getpid()}"
        assert session.invoke("write", (f"/tmp/{name}", 1000)).value is None
        assert session.call(f"open({name!r}).read(3)").text == "'xxx'"
        assert session.invoke("write", ("/tmp/big", 2 << 20)).failure == "OSError: [Errno 27] File too large"
        session.load("def fill():\n    for i in range(100): write(f'/tmp/{i}', 1 << 20)")
        assert session.invoke("fill").failure == "OSError: [Errno 28] No space left on device"
        assert session.call("os.path.exists('/etc/passwd')").text == "False"
        assert session.call("os.path.exists('/home')").text == "False"
    assert not Path("/tmp", name).exists()


def test_nobody_elses_processes(walled):
    with walled.session("import os") as session:
        seen = session.call("[int(n) for n in os.listdir('/proc') if n.isdigit()]").value
        assert len(seen) <= 3
        assert session.call("os.geteuid()").value not in (0, os.geteuid())


def test_processes_are_limited(walled):
    code = """
import os, time
def bomb(n):
    made = 0
    try:
        while made < n:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            made += 1
    except OSError as error:
        return made, type(error).__name__
    return made, ''
"""
    with walled.session(code) as session:
        made, error = session.invoke("bomb", (200,)).value
        assert error == "BlockingIOError"
        assert 0 < made < walled.limits.processes


def test_nothing_outlives_a_session(walled):
    limits = walled.limits.model_copy(update={"memory_bytes": (128 << 20) + 4096 * (os.getpid() % 1000 + 1)})
    mark = f"'RLIMIT_AS': {limits.memory_bytes}".encode()
    code = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\n"
    with Sandbox(limits, kind="bwrap").session(code) as session:
        assert session.loaded.ok
        assert _running(mark) >= 2
    for _ in range(2000):  # the kernel needs a moment to take them down
        if not _running(mark):
            break
    assert _running(mark) == 0


ADOPT = """
import ctypes, os, sys
from steproute.verify import Sandbox
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans become ours instead of process 1's
for _ in range(3):
    with Sandbox().session("import os, time\\nif os.fork() == 0: time.sleep(1000)") as session:
        assert session.loaded.ok
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    sys.exit(0)
sys.exit(1)
"""


def test_no_zombies_are_left_to_process_1(walled):
    assert subprocess.run([sys.executable, "-c", ADOPT], timeout=60, check=False).returncode == 0


def _running(mark: bytes) -> int:
    count = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                count += mark in (folder / "cmdline").read_bytes()
            except OSError:
                continue
    return count


def test_memory_is_limited(walled):
    with walled.session() as session:
        assert session.call("len(bytearray(1 << 40))").failure == "MemoryError: "
        session.load("def hog():\n    kept = []\n    while True: kept.append(bytearray(1 << 22))")
        assert session.invoke("hog").error == "MemoryError"
        assert session.call("1").text == "1"


def test_a_longer_answer_than_allowed_ends_the_session(walled):
    with walled.session() as session:
        assert session.call("'x' * 10_000_000") == GONE
        assert session.ending == "flood"


def test_answers_nobody_asked_for_end_the_session(walled):
    code = """
import os
def forge(text):
    for fd in range(3, 32):
        try: os.write(fd, text)
        except OSError: pass
"""
    for forged, ending in [
        (b"9 value 1\n", "forged"),
        (b"2 value 1\n", "forged"),  # the right number, then a second answer
        (b"\xff\xfe\n", "forged"),
        (b"2 text 5\n", "forged"),
        (b"2 error ('a', 'b', 'c')\n", "forged"),
        (b"2\n", "forged"),
        (b"x" * (5 << 20), "flood"),
    ]:
        with walled.session(code) as session:
            session.invoke("forge", (forged,))
            session.call("1")
            session.call("1")
            assert session.ending == ending, forged[:30]
            assert session.call("1") == GONE


def test_a_candidate_that_never_reads_blocks_nobody(walled):
    code = """
import os, threading
def steal():
    while True:
        for fd in range(3, 12):
            try: os.read(fd, 1 << 16) if fd != 0 else None
            except OSError: pass
threading.Thread(target=steal, daemon=True).start()
"""
    with Sandbox(walled.limits.model_copy(update={"wall_seconds": 1.0})).session(code) as session:
        big = "x" * (1 << 21)
        for _ in range(3):
            result = session.invoke("len", (big,))
        assert result.error in ("TimeoutError", "NameError")


def test_killing_everything_kills_only_itself(walled):
    with walled.session("import os") as session:
        session.call("os.kill(1, 9)")
        session.call("os.kill(os.getppid(), 9)")
        assert session.call("os.kill(-1, 9)").error in ("TimeoutError", "ProcessLookupError", "PermissionError")
    with walled.session() as session:
        assert session.call("1").text == "1"


def test_sessions_in_many_threads(walled):
    def work(n: int) -> object:
        with walled.session("def f(x):\n    while x == 7: pass\n    return x * x") as session:
            return session.invoke("f", (n,)).value if n != 7 else session.invoke("f", (n,)).error

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(12))) == [n * n if n != 7 else "TimeoutError" for n in range(12)]


@pytest.mark.parametrize("field", ["cpu_seconds", "wall_seconds", "memory_bytes", "processes", "answer_bytes"])
def test_limits_must_be_positive(field):
    with pytest.raises(ValidationError, match=field):
        SandboxLimits(**{field: 0})


@pytest.fixture
def unprobed():
    probing._find_launcher.cache_clear()
    yield
    probing._find_launcher.cache_clear()


def test_missing_bubblewrap_is_said_once(unprobed, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("PATH", str(tmp_path))
    for _ in range(2):
        assert Sandbox().safe is False
        with Sandbox().session() as session:
            assert session.call("1 + 1").text == "2"
    (record,) = caplog.records
    assert "no `bwrap` on PATH" in record.getMessage()
    with pytest.raises(SandboxUnavailable, match="no `bwrap` on PATH"):
        Sandbox(kind="bwrap").session()


def test_bubblewrap_counts_only_after_a_probe_run(unprobed, monkeypatch, tmp_path, caplog):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Sandbox().safe is False
    assert "setting up uid map: Permission denied" in caplog.records[0].getMessage()
    with pytest.raises(SandboxUnavailable, match="setting up uid map: Permission denied"):
        _ = Sandbox(kind="bwrap").safe


def test_a_wrapper_that_walls_nothing_off_is_not_safe(unprobed, monkeypatch, tmp_path):
    """Something called bwrap that just runs the command."""
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != "-s" ]; do last="$1"; shift; done\nexec "$last" "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Sandbox().launcher.kind in ("bwrap", "subprocess")
    assert Sandbox().safe is False


def test_interpreters_that_are_none_are_refused(unprobed, tmp_path):
    with pytest.raises(SandboxUnavailable, match="does not start"):
        _ = Sandbox(python=str(tmp_path / "python")).safe


def test_a_virtual_environments_interpreter_works(walled):
    with Sandbox(walled.limits, python=sys.executable).session() as session:
        version = session.call("__import__('sys').version_info[:2]").value
    assert version == sys.version_info[:2]
