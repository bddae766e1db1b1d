"""Headless Chromium driven over its debugging pipe: no port, no network, no driver to install."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One process; each `open` gives a fresh tab."""

    def __init__(self, program: str, profile: Path, timeout: float = 90.0):
        self.timeout = timeout
        theirs_in, self._out = (_high(end) for end in os.pipe())
        self._in, theirs_out = (_high(end) for end in os.pipe())

        def hand_over() -> None:  # Chromium reads commands on 3 and answers on 4
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(3, 4),
            preexec_fn=hand_over,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        """Ask Chromium to end, and make sure that it did."""
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            self.send("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._in)
        os.close(self._out)

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def hear(self, event: str, session: str) -> None:
        """Wait for an event of a tab."""
        deadline = time.monotonic() + self.timeout
        while not any(item["method"] == event and item.get("sessionId") == session for item in self.events):
            self._receive(deadline)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            chunk = os.read(self._in, 1 << 20)
            if not chunk:
                raise EOFError("Chromium ended")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, page: Path, width: int = 1440, height: int = 900, dark: bool = False, fragment: str = "") -> Tab:
        """Load a file and wait until it says that it is drawn."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, target, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.send(f"{domain}.enable")
        tab.resize(width, height)
        if dark:
            tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        tab.send("Page.navigate", url=page.resolve().as_uri() + fragment)
        self.hear("Page.loadEventFired", session)
        tab.wait("document.documentElement.dataset.ready === '1'")
        return tab


class Tab:
    """One page: run JavaScript in it, press keys, hear what it complains about and what it asks for."""

    def __init__(self, browser: Browser, target: str, session: str):
        self.browser, self.target, self.session = browser, target, session

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.send(method, self.session, **params)

    def resize(self, width: int, height: int = 900) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 700
        )

    def run(self, expression: str) -> Any:
        """Value of a JavaScript expression; a promise is awaited."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, condition: str, most: float = 20.0) -> None:
        """Wait until a JavaScript condition holds; tells what the page complained about when it never does."""
        look = f"const look = () => ({condition}) ? done(true) : Date.now() > end ? done(false) : setTimeout(look, 15)"
        held = self.run(f"new Promise((done) => {{ const end = Date.now() + {most * 1000}; {look}; look(); }})")
        assert held, f"never held: {condition}; complaints: {self.complaints()}"

    def text(self, selector: str) -> str:
        """Rendered text of the first match."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def texts(self, selector: str) -> list[str]:
        """Rendered text of every match."""
        found = self.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((node) => node.innerText ?? node.textContent)"
        )
        return [str(item) for item in found]

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def choose(self, selector: str, value: str) -> None:
        """Pick an option of a select, as a user would."""
        self.run(
            f"(() => {{ const node = document.querySelector({json.dumps(selector)}); node.value = {json.dumps(value)};"
            " node.dispatchEvent(new Event('change', { bubbles: true })); })()"
        )

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key: its name, its virtual key code and what it types."""
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **typed)

    def complaints(self) -> list[str]:
        """Console errors and warnings, uncaught exceptions, refused or failed loads."""
        found = []
        for event in self._events():
            method, params = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(" ".join(str(item.get("value", item.get("description"))) for item in params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            elif method == "Network.loadingFailed":
                found.append(params["errorText"])
        return found

    def requests(self) -> list[str]:
        """Every URL the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self._events()
            if event["method"] == "Network.requestWillBeSent"
        ]

    def _events(self) -> list[dict[str, Any]]:
        self.run("0")  # whatever happened before is in the pipe by now
        return [event for event in self.browser.events if event.get("sessionId") == self.session]

    def screenshot(self, path: Path, selector: str = "html") -> None:
        """One element, or the whole page, as PNG."""
        box = f"(({{x, y, width, height}}) => [x, y + scrollY, width, height])(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        clip = {**dict(zip(("x", "y", "width", "height"), self.run(box), strict=True)), "scale": 1}
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self.browser.send("Target.closeTarget", targetId=self.target)


def _high(end: int) -> int:
    """The same pipe end at a number that 3 and 4 cannot collide with."""
    copy = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(end)
    return copy
