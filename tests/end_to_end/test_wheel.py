"""The built wheel works in a clean environment."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def run(*command: object, **options: object) -> str:
    return subprocess.run(
        [str(part) for part in command], check=True, capture_output=True, text=True, **options
    ).stdout


@pytest.mark.slow
def test_the_wheel_installs_in_a_clean_environment_and_draws_noise(tmp_path):
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("skellam-*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)
    code = (
        "import skellam as sk\n"
        "from importlib.resources import files\n"
        "from skellam import noise\n"
        "assert files('skellam.report').joinpath('style.css').read_text()\n"
        "print(len(noise.SkellamSampler(4.0).draw(1000, entropy=sk.SystemEntropy())), sk.__file__)"
    )
    printed = run(python, "-c", code, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
    assert printed.startswith("1000 ")
    assert str(tmp_path / "venv") in printed
