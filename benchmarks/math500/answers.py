"""Find the answer in a reply and say whether two answers are the same, by math-verify in a process of its own."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from importlib.util import find_spec

logger = logging.getLogger("steproute")

SECONDS = 20.0
"""Longest wait for one answer; the process is then replaced."""


class Answers:
    """May be shared between threads; close it at the end."""

    def __init__(self) -> None:
        """Start nothing yet.

        Raises:
            ImportError: math-verify is missing; names the extra.
        """
        self._process: subprocess.Popen[str] | None = None
        if find_spec("math_verify") is None:
            raise ImportError('MATH-500 needs math-verify: pip install "steproute[math]"')
        self._lock = threading.Lock()
        self.lost = 0
        """Questions that took too long or ended the process."""

    def read(self, reply: str) -> str | None:
        """The answer of a reply, boxed or said last, as LaTeX; None = it has none."""
        found = self._ask(["read", reply])
        return found if isinstance(found, str) else None

    def same(self, one: str, other: str) -> bool:
        """Whether two answers in LaTeX mean the same: ½ and 0.5 do."""
        return self._ask(["same", one, other]) is True

    def _ask(self, request: list[str]) -> object:
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                process = self._process = subprocess.Popen(
                    [sys.executable, "-m", "steproute.benchmarks.math500.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    encoding="utf-8",
                )
            assert process.stdin is not None
            assert process.stdout is not None
            timer = threading.Timer(SECONDS, process.kill)
            timer.start()
            try:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            finally:
                timer.cancel()
            if not line.endswith("\n"):
                self.lost += 1
                logger.warning("math-verify gave no answer on %.80r (%d so far)", request[1], self.lost)
                self._stop()
                return None
            found: object = json.loads(line)
            return found

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def close(self) -> None:
        """End the process; may be called twice."""
        with self._lock:
            self._stop()

    def __del__(self) -> None:
        self._stop()
