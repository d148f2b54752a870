"""A page as a real browser sees it: headless Chromium over its debugging pipe, without any driver library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXECUTABLE = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


@dataclass
class Seen:
    """What opening a page led to. `requests`: every address asked for, the page's own included; `problems`: of console and network."""

    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    loaded: bool = False


class Page:
    """One tab. Commands and events are JSON, each ended by a NUL, on two pipes."""

    def __init__(self, to_browser: int, from_browser: int, timeout_s: float):
        self._out, self._in, self._deadline = to_browser, from_browser, time.monotonic() + timeout_s
        self._buffer, self._sent, self._session = b"", 0, None
        self.seen = Seen()
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def open(self, url: str) -> Seen:
        """Load `url` and wait until everything on it is loaded."""
        self.seen = Seen()
        self._ask("Page.navigate", url=url)
        while not self.seen.loaded:
            self._note(self._read())
        return self.seen

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, file: Path) -> None:
        """The whole page as a PNG."""
        file.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._sent:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert time.monotonic() < self._deadline, "the browser did not answer in time"
            part = os.read(self._in, 1 << 20)
            assert part, "the browser ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self.seen.loaded = True
            case "Network.requestWillBeSent":
                self.seen.requests.append(params["request"]["url"])
            case "Network.loadingFailed":
                self.seen.problems.append(params["errorText"])
            case "Runtime.exceptionThrown":
                self.seen.problems.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.seen.problems.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.seen.problems.append(params["entry"]["text"])


@contextmanager
def browser(profile: Path, timeout_s: float = 120.0) -> Iterator[Page]:
    """A headless Chromium with an empty profile."""
    assert EXECUTABLE is not None
    read, to_browser = os.pipe()
    from_browser, write = os.pipe()

    def pipes() -> None:  # the browser reads commands from 3 and answers on 4; the copies do not close on exec
        spare = [os.dup(read), os.dup(write)]
        for at, descriptor in zip((3, 4), spare, strict=True):
            os.dup2(descriptor, at)

    command = [
        EXECUTABLE, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=1200,900",
        f"--user-data-dir={profile}", "--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage",
        "about:blank",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )  # fmt: skip
    os.close(read)
    os.close(write)
    try:
        yield Page(to_browser, from_browser, timeout_s)
    finally:
        os.close(to_browser)
        os.close(from_browser)
        process.terminate()
        process.wait(30)
