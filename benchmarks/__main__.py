"""``python -m benchmarks [--all | name ...]`` runs every ``bench_<name>``, or those that are named.

``--all`` runs all of them in one go and ends with one table for ``docs/benchmarks.md``: each line
has its peer, its limit, its ratio and the command that measures it again. What takes longer than a
few minutes by itself is sampled there (``bench_<name>.sample``).
"""

from __future__ import annotations

import platform
import sys
import time
from importlib import import_module
from pathlib import Path

from benchmarks.timing import Report


def main(arguments: list[str]) -> None:
    known = sorted(
        path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py")
    )
    names = [name for name in arguments if name != "--all"]
    if unknown := set(names) - set(known):
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if "--all" in arguments:
        print(in_one_table(names or known))
        return
    for name in names or known:
        import_module(f"benchmarks.bench_{name}").main()


def in_one_table(names: list[str]) -> str:
    """Run these, and return all of their ratios in one table of Markdown."""
    start, lines = time.perf_counter(), []
    for name in names:
        module = import_module(f"benchmarks.bench_{name}")
        first = len(Report.made)
        getattr(module, "sample", module.main)()
        for report in Report.made[first:]:
            lines += [f"| {line} | `{name}` |" for line in report.lines]
    minutes = (time.perf_counter() - start) / 60
    when = f"{machine()}, {time.strftime('%d %B %Y')}, {minutes:.0f} minutes"
    return "\n".join(
        [
            f"{when}; the command is `python -m benchmarks` and the last column:",
            "",
            "| what | measured | ratio | limit | command |",
            "|---|---|---:|---:|---|",
            *lines,
        ]
    )


def machine() -> str:
    """Return the processor's name and how many there are."""
    found = platform.processor() or platform.machine()
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            names = [
                line.partition(":")[2].strip() for line in file if line.startswith("model name")
            ]
        found = f"{len(names)} cores of {names[0]}"
    except (OSError, IndexError):
        pass
    return f"{found}, Python {platform.python_version()}"


if __name__ == "__main__":
    main(sys.argv[1:])
