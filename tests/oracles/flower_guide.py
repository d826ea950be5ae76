"""The guide's shell blocks, by title, and an environment in which they run."""

import os
import re
import socket
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide" / "flower.md"


def blocks():
    found = re.findall(r'```bash title="([^"]+)"\n(.*?)```', GUIDE.read_text(), flags=re.DOTALL)
    assert len(found) == GUIDE.read_text().count("```bash"), "every shell block has a title"
    return dict(found)


def environment(home, **more):
    """Return what a user's shell has, a home for Flower, and speed; nothing that a run needs."""
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return {
        **os.environ,
        "PATH": os.pathsep.join(paths),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **more,
    }


def free_ports(count):
    """Return as many ports of this machine that nobody listens on, all different."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
