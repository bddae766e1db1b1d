"""Verdicts kept in a file, by the hash of everything that decides them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from steproute.verify.checks import ExamplesResult, check_examples, check_tests
from steproute.verify.examples import Example
from steproute.verify.sandbox import Sandbox
from steproute.verify.verdict import Verdict

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result", Verdict, ExamplesResult)
_KINDS: dict[str, TypeAdapter[Verdict] | TypeAdapter[ExamplesResult]] = {
    "tests": TypeAdapter(Verdict),
    "examples": TypeAdapter(ExamplesResult),
}


class VerdictCache:
    """A JSON-lines file of verdicts that several threads and processes may share.

    A verdict is found again only for the same code, tests, limits and Python version (`3.11`), and one that was made in
    a plain subprocess only where the sandbox asking is no better. Lines that are torn or malformed are skipped.
    """

    def __init__(self, path: str | Path, *, python: str = "", readonly: bool = False) -> None:
        """Open a cache; the file is made at the first verdict.

        Args:
            path: the file.
            python: version whose verdicts are asked for, `3.11`; by default the sandbox's own. Recorded runs name
                theirs, because the text of an error depends on it.
            readonly: never write, e.g. to a file that is part of a recording; new verdicts are kept in memory.
        """
        self._path = Path(path)
        self._python = python
        self._readonly = readonly
        self._known: dict[str, Verdict | ExamplesResult] = {}
        self._offset = 0
        self._lock = threading.Lock()

    def get_or_check(self, code: str, tests: str, sandbox: Sandbox, check: Callable[[], Verdict]) -> Verdict:
        """The verdict on `code` under `tests` (any text that determines them), from the file or else from `check`."""
        return self._recall("tests", (code, tests), sandbox, check)

    def tests(self, code: str, test_source: str, entry_point: str, preamble: str = "", *, sandbox: Sandbox) -> Verdict:
        """`check_tests`, run once for the same arguments."""

        def check() -> Verdict:
            return check_tests(code, test_source, entry_point, preamble, sandbox=sandbox)

        return self._recall("tests", (code, test_source, entry_point, preamble), sandbox, check)

    def examples(
        self, code: str, examples: Sequence[Example], preamble: str = "", *, sandbox: Sandbox
    ) -> ExamplesResult:
        """`check_examples`, run once for the same arguments."""

        def check() -> ExamplesResult:
            return check_examples(code, examples, preamble, sandbox=sandbox)

        parts = (code, preamble, *(part for example in examples for part in (example.call, example.expected)))
        return self._recall("examples", parts, sandbox, check)

    def _recall(self, kind: str, parts: Sequence[str], sandbox: Sandbox, check: Callable[[], _Result]) -> _Result:
        actual = sandbox.launcher.version
        wanted = _key(kind, parts, sandbox, self._python or actual)
        with self._lock:
            if wanted not in self._known:
                self._read()
            found = self._known.get(wanted)
        if found is not None and (not found.unsafe or not sandbox.safe):
            return found  # type: ignore[return-value]  # the key begins with the kind
        result = check()
        key = _key(kind, parts, sandbox, actual)
        with self._lock:
            self._known[key] = result
            if not self._readonly:
                self._write(json.dumps({"key": key, "kind": kind, "python": actual, "result": asdict(result)}))
        return result

    def _read(self) -> None:
        """Take in what was appended since the last look, whole lines only."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        skipped = 0
        for line in whole.splitlines():
            try:
                entry = json.loads(line)
                self._known[str(entry["key"])] = _KINDS[entry["kind"]].validate_python(entry["result"])
            except (ValueError, KeyError, TypeError, RecursionError, ValidationError):
                skipped += bool(line.strip())
        if skipped:
            _log.warning("%s: %d malformed line(s) skipped", self._path.name, skipped)

    def _write(self, line: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file, _locked(file.fileno()):
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # another writer died within a line
                    file.write(b"\n")
            file.write(line.encode("ascii") + b"\n")
            file.flush()


@contextlib.contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    """Keep other processes from writing meanwhile."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _key(kind: str, parts: Sequence[str], sandbox: Sandbox, python: str) -> str:
    everything = [kind, python, sandbox.limits.model_dump(mode="json"), *parts]
    return f"{kind}:{hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()}"
