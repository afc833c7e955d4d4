"""A headless Chromium that opens one page, and reports what became of it, through its own debugging protocol."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websocket import WebSocket, create_connection

_SECONDS = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
)


class Page:
    """A page in the browser, without a name server to ask."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._last = 0
        self.requested: list[str] = []
        """The URLs of all that the page asked for, itself first."""
        self.complaints: list[str] = []
        """What the browser had to say: errors of scripts, what its Content-Security-Policy has stopped."""
        self.dialogs = 0
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One call of the protocol."""
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._last:
                assert "error" not in message, message
                return dict(message["result"])
            self._happened(message["method"], message["params"])

    def open(self, file: Path, width: int) -> None:
        """Open a file as a screen of this width shows it, and wait until its pictures are drawn."""
        self._navigate(file.as_uri(), width)
        deadline = time.monotonic() + _SECONDS
        while self.value("document.documentElement.dataset.drawn ?? ''") != "all":
            assert time.monotonic() < deadline, self.complaints
            time.sleep(0.1)

    def visit(self, url: str, width: int, scheme: str = "light") -> None:
        """Open a page of a web server, as a screen of this width shows it to who likes light or dark ones, and wait until it is there."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._navigate("about:blank", width)
        self._navigate(url, width)
        deadline = time.monotonic() + _SECONDS
        while self.value("document.readyState + location.href") != f"complete{url}":
            assert time.monotonic() < deadline, self.complaints
            time.sleep(0.02)

    def _navigate(self, url: str, width: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true in the page."""
        deadline = time.monotonic() + _SECONDS
        while not self.value(expression):
            assert time.monotonic() < deadline, (expression, self.complaints)
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """Press a key that writes nothing, like Tab."""
        for kind in ("rawKeyDown", "keyUp"):
            code = {"Tab": 9, "Enter": 13}[key]
            text = {"text": "\r"} if key == "Enter" and kind == "rawKeyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def runs_scripts(self, runs: bool) -> None:
        """Whether pages that are opened from now on may run scripts."""
        self.call("Emulation.setScriptExecutionDisabled", value=not runs)

    def awaited(self, promise: str) -> Any:
        """What the promise in a JavaScript expression becomes."""
        answer = self.call("Runtime.evaluate", expression=promise, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, height: int | None = None, scale: float = 1) -> bytes:
        """All of the page, or its upper part in another size, as PNG."""
        width = self.value("innerWidth")
        clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": scale}} if height else {}
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True, **clip)["data"])

    def printed(self) -> bytes:
        """The page on paper, as PDF."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

    def _happened(self, event: str, params: dict[str, Any]) -> None:
        match event:
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"].get("exception", params["exceptionDetails"])))
            case "Page.javascriptDialogOpening":
                self.dialogs += 1


@contextmanager
def chromium() -> Iterator[Page]:
    """A browser of its own, gone in the end."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("pages are looked at in Chromium; install it (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        # Chromium keeps settings below HOME too.
        browser = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": profile},
            start_new_session=True,
        )
        try:
            port = _port(Path(profile), browser)
            yield from _connected(port)
        finally:
            browser.kill()
            browser.wait(_SECONDS)


def _port(profile: Path, browser: "subprocess.Popen[bytes]") -> int:
    port_file = profile / "DevToolsActivePort"
    deadline = time.monotonic() + _SECONDS
    while not port_file.is_file() or not port_file.read_text().strip():
        assert browser.poll() is None, "Chromium ended"
        assert time.monotonic() < deadline, "Chromium does not start"
        time.sleep(0.05)
    return int(port_file.read_text().splitlines()[0])


def _connected(port: int) -> Iterator[Page]:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=_SECONDS) as answer:
        (target,) = (page for page in json.load(answer) if page["type"] == "page")
    socket = create_connection(target["webSocketDebuggerUrl"], timeout=_SECONDS, suppress_origin=True)
    try:
        yield Page(socket)
    finally:
        socket.close()
