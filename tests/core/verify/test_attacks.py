"""Code that cheats, hangs, grabs or breaks: each gets its exact verdict, and the machine stays whole.

The function under test should return its argument plus one.
"""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from steproute.verify import Example, Sandbox, Verdict, check_examples, check_inputs, check_tests

TEST = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(5) == 6\n"

# name: (code, reason, part of the detail)
ATTACKS = {
    # results that lie about being equal
    "int that equals everything": (
        "class Any(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
        "def f(x): return Any(0)",
        "wrong-answer",
        "last result 0",
    ),
    "object that equals everything": (
        "class Any:\n    def __eq__(self, other): return True\ndef f(x): return Any()",
        "wrong-answer",
        "f returns a value of type Any, no literal",
    ),
    "object that pretends to be an int": (
        "class Any:\n    __class__ = int\n    def __eq__(self, other): return True\ndef f(x): return Any()",
        "wrong-answer",
        "type Any, no literal",
    ),
    "object that prints like the answer": (
        "class Two:\n    def __repr__(self): return '2'\ndef f(x): return Two()",
        "wrong-answer",
        "type Two",
    ),
    "a function instead of a value": ("def f(x): return f", "wrong-answer", "type function"),
    "an iterator instead of a value": ("def f(x): yield x + 1", "wrong-answer", "type generator"),
    # reaching for the judge
    "walks the frames": (
        "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n"
        "        frame.f_globals.update(passed=True, result=True, expected=0, outcome='passed')\n"
        "        frame = frame.f_back\n    return 0",
        "wrong-answer",
        "assert candidate(1) == 2",
    ),
    "stops the process as if done": ("import os\ndef f(x): os._exit(0)", "crash", "the process ended"),
    "exits": ("import sys\ndef f(x): sys.exit(0)", "error", "SystemExit: 0"),
    "exits while loading": ("raise SystemExit", "error", "SystemExit: "),
    "raises what asserts raise": ("def f(x): raise AssertionError('2 == 2')", "error", "AssertionError: 2 == 2"),
    "raises an exception of its own": (
        "class Odd(BaseException): pass\ndef f(x): raise Odd('boom')",
        "error",
        "Odd: boom",
    ),
    "overrides the built-ins": (
        "import builtins\nfor name in ('repr', 'eval', 'isinstance', 'issubclass', 'compile', 'type'):\n"
        "    setattr(builtins, name, lambda *a, **k: '2')\ndef f(x): return 0",
        "crash",
        "the process ended",
    ),
    "overrides equality of int": (
        "int.__eq__ = lambda a, b: True\ndef f(x): return 0",
        "error",
        "TypeError: cannot set",
    ),
    "rewrites the guest to give one answer": (
        "import __main__\n__main__.dumps = lambda value, depth=0: '2'\ndef f(x): return 0",
        "wrong-answer",
        "assert candidate(5) == 6",
    ),
    "rewrites the guest to send code": (
        "import __main__\n__main__.dumps = lambda value, depth=0: '__import__(\"os\").getpid()'\ndef f(x): return 0",
        "forbidden",
        "no literal",
    ),
    "writes verdicts into every descriptor": (
        "import os\ndef f(x):\n    for fd in range(64):\n"
        "        try: os.write(fd, b\"0 verdict ('passed', '')\\n\")\n        except OSError: pass\n    return 0",
        "forbidden",
        "nobody asked for",
    ),
    "answers before it is asked": (
        "import os\nfor fd in range(3, 64):\n    for n in range(20):\n"
        "        try: os.write(fd, b'%d value 2\\n' % n)\n        except OSError: pass\ndef f(x): return 0",
        "forbidden",
        "nobody asked for",
    ),
    "writes bytes that are no text": (
        "import os\ndef f(x):\n    for fd in range(64):\n        try: os.write(fd, b'\\xff\\xfe\\n')\n"
        "        except OSError: pass\n    return x + 1",
        "forbidden",
        "nobody asked for",
    ),
    "closes every descriptor": ("import os\ndef f(x):\n    os.closerange(0, 1000)\n    return 2", "crash", "ended"),
    "an error that cannot be printed": (
        "class Bad(Exception):\n    def __str__(self): raise ValueError\ndef f(x): raise Bad",
        "crash",
        "the process ended",
    ),
    # taking more than its share
    "loops": ("def f(x):\n    while True: pass", "timeout", "no answer in the time limit"),
    "loops while loading": ("while True: pass", "timeout", "no answer in the time limit"),
    "loops and ignores the CPU signal": (
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\ndef f(x):\n    while True: pass",
        "crash",
        "the process ended",
    ),
    "takes all memory": ("def f(x):\n    k = []\n    while True: k.append(bytearray(1 << 22))", "error", "MemoryError"),
    "asks for too much at once": ("def f(x): return [0] * (1 << 40)", "error", "MemoryError"),
    "recurses": ("def f(x): return f(x + 1)", "error", "RecursionError: maximum recursion depth exceeded"),
    "returns megabytes": ("def f(x): return 'x' * 10_000_000", "output-limit", "longer than allowed"),
    "nests without end": ("def f(x):\n    y = []\n    y.append(y)\n    return y", "wrong-answer", "nested deeper"),
    "doubles without end": (
        "def f(x):\n    y = []\n    for _ in range(60): y = [y, y]\n    return y",
        "timeout",
        "no answer",
    ),
    "overwrites the system": ("def f(x):\n    open('/usr/bin/python3', 'w')", "error", "Error: [Errno "),
    "fills the disk": (
        "def f(x):\n    for i in range(1000):\n        with open(f'/tmp/{i}', 'wb') as file: file.write(bytes(1 << 20))",
        "error",
        "OSError: [Errno 28] No space left on device",
    ),
    "one large file": ("def f(x): open('x', 'wb').write(bytes(2 << 20))", "error", "[Errno 27] File too large"),
    "reads secrets": ("def f(x): return open('/etc/shadow').read()", "error", "FileNotFoundError"),
    # plain mistakes
    "no code": ("  \n", "no-code", ""),
    "no syntax": ("def f(x)\n    return 1", "syntax", "SyntaxError: expected ':' (line 1)"),
    "a null byte": ("def f(x): return '\0'", "syntax", "null bytes"),
    "another name": ("def g(x): return x + 1", "error", "NameError: name 'f' is not defined"),
    "not a function": ("f = 3", "error", "TypeError: 'int' object is not callable"),
    "wrong arity": ("def f(): return 2", "error", "TypeError: f() takes 0 positional arguments but 1 was given"),
    "fails to import": ("import numpy_is_not_here\ndef f(x): return 2", "error", "ModuleNotFoundError"),
    "right only at first": ("def f(x): return 2", "wrong-answer", "assert candidate(5) == 6"),
    "nothing": ("def f(x): pass", "wrong-answer", "last result None"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_verdict(walled, name):
    code, reason, detail = ATTACKS[name]
    verdict = check_tests(code, TEST, "f", sandbox=walled)
    assert (verdict.passed, verdict.reason) == (False, reason), verdict
    assert detail in verdict.detail
    assert verdict.unsafe is False


RIGHT = {
    "prints megabytes": "def f(x):\n    for _ in range(20): print('x' * 1_000_000)\n    return x + 1",
    "prints bytes that are no text": (
        "import sys\ndef f(x):\n    sys.stdout.buffer.write(b'\\xff' * 9)\n    sys.stderr.write('\\udc80')\n    return x + 1"
    ),
    "reads its input": (
        "import sys\nfirst = sys.stdin.read()\ndef f(x):\n    try: input()\n    except EOFError: return x + 1"
    ),
    "leaves a child behind": ("import os, time\nif os.fork() == 0:\n    time.sleep(1000)\ndef f(x): return x + 1"),
    "forks and lets the copy return": "import os\ndef f(x):\n    os.fork()\n    return x + 1",
    "leaves a thread behind": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\ndef f(x): return x + 1"
    ),
    "writes a file of its own": "def f(x):\n    open('note', 'w').write('x')\n    return x + len(open('note').read())",
    "returns True for one": "def f(x): return x + True",
    "does work only as a program": "def f(x): return x + 1\nif __name__ == '__main__': f(input())",
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_code_with_odd_manners_passes(walled, name):
    verdict = check_tests(RIGHT[name], TEST, "f", sandbox=walled)
    assert (verdict.passed, verdict.reason, verdict.detail) == (True, "passed", "2 calls")


def test_sleeping_is_a_timeout(walled):
    impatient = Sandbox(walled.limits.model_copy(update={"wall_seconds": 0.5}))
    verdict = check_tests("import time\ndef f(x): time.sleep(1000)", TEST, "f", sandbox=impatient)
    assert (verdict.passed, verdict.reason, verdict.detail) == (False, "timeout", "no answer in the time limit")


def test_a_fork_bomb_is_bounded(walled):
    verdict = check_tests("import os\ndef f(x):\n    while True: os.fork()", TEST, "f", sandbox=walled)
    assert not verdict.passed
    assert (verdict.reason, verdict.detail) in [
        ("error", "BlockingIOError: [Errno 11] Resource temporarily unavailable"),
        ("timeout", "no answer in the time limit"),
    ]


def test_recursion_beyond_the_stack(walled):
    code = "import sys\nsys.setrecursionlimit(1 << 30)\ndef f(x): return max([f(x + 1)])"
    verdict = check_tests(code, TEST, "f", sandbox=walled)
    assert not verdict.passed
    assert verdict.reason in ("crash", "error", "timeout")  # how it falls depends on the interpreter


def test_a_socket_reaches_nobody(walled):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        code = f"import socket\ndef f(x):\n    socket.create_connection({server.getsockname()!r})\n    return x + 1"
        verdict = check_tests(code, TEST, "f", sandbox=walled)
        assert (verdict.reason, verdict.detail) == ("error", "ConnectionRefusedError: [Errno 111] Connection refused")
        with pytest.raises(BlockingIOError):
            server.accept()


def test_arguments_cannot_be_changed_under_the_test(walled):
    """Emptying the list would make `sum(given) == candidate(given)` true for a function that returns 0."""
    test = "def check(candidate):\n    given = [1, 2]\n    assert candidate(given) == sum(given)\n    assert given == [1, 2]\n"
    verdict = check_tests("def f(x):\n    x.clear()\n    return 0", test, "f", sandbox=walled)
    assert verdict.reason == "wrong-answer"
    assert check_tests("def f(x):\n    return x.pop() + x.pop()", test, "f", sandbox=walled).passed


def test_given_functions_cannot_be_replaced_for_the_test(walled):
    """HumanEval/32, /38 and /50 call functions of the problem in their tests."""
    preamble = "def double(x):\n    return 2 * x\n"
    test = "def check(candidate):\n    for n in range(5):\n        assert candidate(double(n)) == n\n"
    assert check_tests("def f(x): return x // 2", test, "f", preamble, sandbox=walled).passed
    cheat = "def double(x): return 0\ndef f(x): return 0"
    assert check_tests(cheat, test, "f", preamble, sandbox=walled).reason == "wrong-answer"


def test_verdicts_in_many_threads(walled):
    names = ["loops", "exits", "returns megabytes", "walks the frames", "no syntax", "takes all memory"]

    def judge(name: str) -> Verdict:
        return check_tests(ATTACKS[name][0], TEST, "f", sandbox=walled)

    with ThreadPoolExecutor(6) as pool:
        reasons = [verdict.reason for verdict in pool.map(judge, names * 2)]
    assert reasons == [ATTACKS[name][1] for name in names * 2]


def test_a_plain_subprocess_is_marked_unsafe():
    plain = Sandbox(kind="subprocess")
    good = "def f(x): return x + 1"
    verdict = check_tests(good, TEST, "f", sandbox=plain)
    assert (verdict.passed, verdict.unsafe) == (True, True)
    assert check_tests("", TEST, "f", sandbox=plain).unsafe
    assert check_examples(good, [Example("f(1)", "2")], sandbox=plain).unsafe
    assert check_inputs(good, "f", [[1]], good, sandbox=plain).unsafe


@pytest.mark.parametrize(
    "name", ["loops", "stops the process as if done", "writes verdicts into every descriptor", "returns megabytes"]
)
def test_a_plain_subprocess_still_bounds_and_judges(any_sandbox, name):
    verdict = check_tests(ATTACKS[name][0], TEST, "f", sandbox=any_sandbox)
    assert (verdict.passed, verdict.reason) == (False, ATTACKS[name][1])
