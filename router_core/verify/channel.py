"""One line to a process and one line back, never waiting longer or taking more than allowed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Literal

Ending = Literal["timeout", "crash", "flood", "forged"]
"""Why a process answers no more: too slow, gone, an answer too long, an answer nobody asked for."""

_CHUNK = 1 << 16
_CPU_LIMIT_CODES = frozenset({-signal.SIGXCPU, 128 + signal.SIGXCPU})  # direct, and as bubblewrap reports it


class Ended(Exception):
    """The process answers no more; `ending` says why."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending: Ending = ending


class Channel:
    """A process and its two pipes. Not shared between threads."""

    def __init__(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        folder: str | None,
        max_line: int,
        *,
        reports_child: bool = False,
    ) -> None:
        """Start the process.

        Args:
            command: program and arguments.
            environment: its whole environment; nothing is inherited.
            folder: working directory, or None for the parent's.
            max_line: longest answer taken, in bytes.
            reports_child: the program is bubblewrap, which can say which process is the first inside.
        """
        self._report = -1
        inherited: tuple[int, ...] = ()
        if reports_child:
            self._report, writing = os.pipe()
            inherited = (writing,)
            command = [command[0], "--info-fd", str(writing), *command[1:]]
        try:
            self._process = self._start(command, environment, folder, inherited)
        except OSError:
            self._close_report()
            raise
        finally:
            for descriptor in inherited:
                os.close(descriptor)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._max_line = max_line
        self._unread = bytearray()
        self._closed = False
        for descriptor in (self._input.fileno(), self._output.fileno()):
            os.set_blocking(descriptor, False)

    @staticmethod
    def _start(
        command: Sequence[str], environment: dict[str, str], folder: str | None, inherited: tuple[int, ...]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=environment,
            cwd=folder,
            pass_fds=inherited,
            start_new_session=True,  # so that its whole group can be killed, and Ctrl-C ends the parent first
        )

    def exchange(self, line: bytes, deadline: float) -> bytes:
        """Send one line and return the next.

        Both directions move at once: a process that never reads cannot block the caller.

        Args:
            line: without its newline.
            deadline: `time.monotonic()` at which to give up.

        Raises:
            Ended: no answer in time, the process is gone, the answer is longer than allowed, or a line came unasked.
        """
        if b"\n" in self._unread:
            raise Ended("forged")
        unsent = memoryview(line + b"\n")
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        poll.register(self._input, select.POLLOUT)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Ended("timeout")
            for descriptor, _ in poll.poll(left * 1000):
                if descriptor == self._output.fileno():
                    self._read()
                else:
                    unsent = unsent[self._write(unsent) :]
                    if not unsent:
                        poll.unregister(self._input)
            end = self._unread.find(b"\n", max(0, len(self._unread) - _CHUNK))
            if end >= 0:
                if unsent:
                    raise Ended("forged")
                answer = bytes(self._unread[:end])
                del self._unread[: end + 1]
                return answer
            if len(self._unread) > self._max_line:
                raise Ended("flood")

    def _read(self) -> None:
        try:
            chunk = os.read(self._output.fileno(), _CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            raise Ended(self._how_it_ended())
        self._unread += chunk

    def _write(self, data: memoryview) -> int:
        try:
            return os.write(self._input.fileno(), data[:_CHUNK])
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise Ended(self._how_it_ended()) from None

    def _how_it_ended(self) -> Ending:
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:  # it closed its pipe and lives on
            return "crash"
        return "timeout" if code in _CPU_LIMIT_CODES else "crash"

    def close(self) -> None:
        """Kill the process and its group; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self._kill_child()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for stream in (self._input, self._output):
            with contextlib.suppress(OSError):
                stream.close()
        self._close_report()

    def _kill_child(self) -> None:
        """Kill the first process inside and let bubblewrap reap it.

        Killed itself, bubblewrap would leave a zombie to process 1, which in many containers reaps nothing.
        """
        if self._report < 0 or self._process.poll() is not None:
            return
        os.set_blocking(self._report, False)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
            os.kill(json.loads(os.read(self._report, 4096))["child-pid"], signal.SIGKILL)
            self._process.wait(timeout=5.0)

    def _close_report(self) -> None:
        if self._report >= 0:
            os.close(self._report)
            self._report = -1
