"""Compare coverage.py's JSON report with the floors in pyproject.toml (``make cover``).

coverage's own ``fail_under`` mixes lines and branches and knows one number for the whole project.
"""

import json
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def floors():
    """Return per cent of branches by path under ``src``."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["skellam"]["branch-floors"]


def branches(report, prefix):
    """Return per cent of branches covered in the files under ``src/prefix``."""
    parts = [
        file["summary"]
        for path, file in report["files"].items()
        if f"/{prefix}/" in f"/{Path(path).as_posix()}"
    ]
    total = sum(part["num_branches"] for part in parts)
    if not total:
        raise SystemExit(f"{prefix}: no branches in the report; is the path right?")
    return 100 * sum(part["covered_branches"] for part in parts) / total


def main(path):
    """Print each package's coverage, and return 1 if one lies below its floor."""
    report = json.loads(Path(path).read_text())
    found = {prefix: branches(report, prefix) for prefix in floors()}
    for prefix, floor in floors().items():
        verdict = "ok" if found[prefix] >= floor else "BELOW"
        print(f"{prefix:24} {found[prefix]:6.2f} % of branches, floor {floor} %: {verdict}")
    return int(any(found[prefix] < floor for prefix, floor in floors().items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
