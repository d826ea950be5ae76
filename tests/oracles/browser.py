"""A real headless Chromium, driven through its debugging pipe: what a page asks for and says."""

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

import pytest

_SECONDS = 120
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run"
    " --disable-background-networking --disable-component-update --disable-sync"
    " --remote-debugging-pipe"
)


def require_chromium():
    """Return Chromium's path; install Debian's package where that is possible, else skip."""
    found = shutil.which("chromium")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in ("update", "install --yes --no-install-recommends chromium"):
            subprocess.run(["apt-get", *command.split()], check=False, capture_output=True)
        found = shutil.which("chromium")
    if found is None:
        pytest.skip("needs Debian's package chromium, and root to install it with apt-get")
    return found


@dataclass
class Visit:
    """What a page did: the addresses it asked for, what it complained of, how it looked."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    picture: bytes = b""
    value: object = None


def visit(url, *, scheme="light", width=1200, height=2400, script="undefined"):
    """Open ``url`` and return what happened until it was loaded and painted.

    ``script`` runs in the loaded page; what it (or its promise) comes to is the visit's ``value``.
    """
    with _chromium(require_chromium()) as pipe:
        target = pipe.call("Target.createTarget", url="about:blank")["targetId"]
        pipe.session = pipe.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Network", "Log", "Runtime", "Page"):
            pipe.call(f"{domain}.enable")
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        pipe.call("Emulation.setEmulatedMedia", features=media)
        pipe.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        pipe.call("Page.navigate", url=url)
        pipe.wait_for("Page.loadEventFired")
        result = pipe.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )["result"]
        picture = pipe.call("Page.captureScreenshot", format="png")["data"]
        return _summary(pipe.events, base64.b64decode(picture), result.get("value"))


def _summary(events, picture, value):
    seen = Visit(picture=picture, value=value)
    for event in events:
        params = event["params"]
        match event["method"]:
            case "Network.requestWillBeSent":
                seen.requests.append(params["request"]["url"])
            case "Log.entryAdded":
                seen.complaints.append(params["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                seen.complaints.append(json.dumps(params))
    return seen


@contextlib.contextmanager
def _chromium(path):
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Chromium reads commands from descriptor 3 and answers on 4.
        script = f'exec "$0" {_FLAGS} --user-data-dir="$1" 3<&{theirs_in} 4>&{theirs_out}'
        process = subprocess.Popen(
            ["/bin/bash", "-c", script, path, profile],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        pipe = _Pipe(ours_in, ours_out)
        try:
            yield pipe
            pipe.session = None
            pipe.call("Browser.close")
        finally:
            os.close(ours_in)
            os.close(ours_out)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


class _Pipe:
    def __init__(self, reader, writer):
        self.session = None
        self.events = []
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)
        self._rest = b""

    def call(self, method, **params):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda m: m.get("id") == number)
        assert "error" not in answer, answer
        return answer["result"]

    def wait_for(self, method):
        if not any(event["method"] == method for event in self.events):
            self._until(lambda m: m.get("method") == method)

    def _until(self, is_wanted):
        deadline = time.monotonic() + _SECONDS
        while True:
            while b"\0" not in self._rest:
                ready, _, _ = select.select([self._reader], [], [], deadline - time.monotonic())
                octets = os.read(self._reader, 1 << 20) if ready else b""
                assert octets, "Chromium says nothing more"
                self._rest += octets
            line, self._rest = self._rest.split(b"\0", 1)
            message = json.loads(line)
            if "method" in message:
                self.events.append(message)
            if is_wanted(message):
                return message
