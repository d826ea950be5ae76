import io
import subprocess
import sys

from rich.console import Console

from skellam import federated as fl
from skellam.federated.monitoring import describe

SHOWN = fl.Record(
    round=1, test={"loss": 0.25, "accuracy": 0.9}, epsilon_public=1.5, epsilon_server=12.0
)


def test_a_measured_record_is_told_in_few_words():
    assert describe(SHOWN) == "accuracy 90.0%, loss 0.25, ε 1.5 public, 12 server"
    assert describe(fl.Record(round=0)) == ""


def test_the_bar_shows_round_measures_and_both_epsilons():
    out = io.StringIO()
    with fl.progress(4, console=Console(file=out, width=120, force_terminal=True)) as watch:
        watch(SHOWN)
        watch(fl.Record(round=2, skipped="too few clients"))
    assert "3/4" in out.getvalue()
    assert "ε 1.5 public" in out.getvalue()
    assert "1 rounds skipped" in out.getvalue()


def test_the_face_of_federated_imports_torch_only_when_it_is_needed():
    code = (
        "import sys; from skellam import federated as fl; fl.History; print('torch' in sys.modules)"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert outcome.stdout.strip() == "False"
