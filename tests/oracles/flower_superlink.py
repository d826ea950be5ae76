"""The SuperLink that ``flwr run`` starts by itself and leaves running."""

import os
import signal
import time
from pathlib import Path


def end_managed_superlink(home):
    """End, by its id, the SuperLink that ``flwr run`` leaves behind for this home."""
    ids = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"flower-superlink" in (line := _read(path)) and f"{home}/".encode() in line
    ]
    for process in ids:
        os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + 20
    while ids and time.monotonic() < deadline:
        ids = [process for process in ids if Path(f"/proc/{process}").exists()]
        time.sleep(0.2)
    for process in ids:
        os.kill(process, signal.SIGKILL)


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""
