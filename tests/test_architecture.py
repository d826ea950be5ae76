"""Architecture: the direction of imports, the cost of importing, and the public names."""

import subprocess
import sys
from pathlib import Path

import pytest

import skellam

ROOT = Path(__file__).parent.parent
HEAVY = ["torch", "flwr", "matplotlib", "numba", "scipy", "dp_accounting"]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [tool, "--no-cache", "--config", folder / "pyproject.toml"],
        cwd=folder,
        env={"PYTHONPATH": str(folder / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_packages_import_downwards_only():
    outcome = lint(ROOT)
    assert outcome.returncode == 0, outcome.stdout


def test_the_contract_catches_a_package_that_imports_upwards(tmp_path):
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    package = tmp_path / "src" / "skellam"
    for name in ("noise", "accounting"):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").touch()
    for name in ("__init__", "entropy", "_kernels", "vectors", "cohorts", "bands", "_checks"):
        (package / f"{name}.py").touch()
    (package / "errors.py").write_text("import skellam.noise\n")
    outcome = lint(tmp_path)
    assert outcome.returncode != 0
    assert "skellam.errors -> skellam.noise" in outcome.stdout


def test_importing_skellam_imports_nothing_heavy():
    code = f"import sys, skellam; print([m for m in {HEAVY} if m in sys.modules])"
    outcome = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert outcome.stdout.strip() == "[]"


def test_the_public_names_are_these():
    assert sorted(skellam.__all__) == [
        "AdaptiveClip",
        "CalibratedPlan",
        "Lattice",
        "Plan",
        "Reals",
        "Residues",
        "SeededEntropy",
        "SkellamError",
        "SystemEntropy",
        "accounting",
        "analytics",
        "audit",
        "codec",
        "cohorts",
        "engines",
        "errors",
        "federated",
        "noise",
        "plan",
        "report",
        "secagg",
        "tasks",
        "twoserver",
    ]
    assert set(dir(skellam)) == {*skellam.__all__, "__version__"}


@pytest.mark.parametrize("name", skellam.__all__)
def test_every_public_name_resolves_and_is_documented(name):
    assert getattr(skellam, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        skellam.no_such_name  # noqa: B018
