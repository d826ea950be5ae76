"""Turns a copy of the example into an app whose noise replays and whose server writes down sums.

Both live in the app's code, which a test puts there: no message and no configuration can.
"""

CLIENT = """
from flwr.clientapp import ClientApp
from digits_app.client_app import train
from skellam import SeededEntropy
from skellam.engines.flower import Limits, protect

app = ClientApp()
protect(
    app,
    entropy=lambda purpose: SeededEntropy(bytes(32), purpose),
    simulated=Limits.for_simulation(),
)(train)
"""
SERVER = """
from flwr.serverapp import ServerApp
from digits_app.server_app import run
import numpy as np

app = ServerApp()

@app.main()
def main(grid, context):
    result, reports = run(grid, context)
    sums = {}
    for report in reports:
        sums[f"failure-{report.number}"] = report.failure
        sums[f"content-{report.number}"] = list(report.content)
        if report.result is not None:
            sums[f"total-{report.number}"] = report.result.total.values
            sums[f"participants-{report.number}"] = report.result.participants
            sums[f"survivors-{report.number}"] = report.result.survivors
    for name, array in result.arrays.items():
        sums[f"final-{name}"] = array.numpy()
    np.savez(%(out)r, **sums)
"""


def make_replayable(app, out):
    """Rewrite the app in the folder ``app``; its server leaves ``out``, an npz file."""
    package = app / "digits_app"
    (package / "replay_client.py").write_text(CLIENT)
    (package / "replay_server.py").write_text(SERVER % {"out": str(out)})
    project = app / "pyproject.toml"
    text = project.read_text()
    text = text.replace("digits_app.client_app:app", "digits_app.replay_client:app")
    text = text.replace("digits_app.server_app:app", "digits_app.replay_server:app")
    project.write_text(text)
