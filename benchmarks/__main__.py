"""``python -m benchmarks [--all [--write PAGE]] [name ...]`` runs every ``bench_<name>``, or some.

``--all`` runs all of them in one go and ends with one table: each line has what was measured, the
peer or the limit beside it, the ratio of the two, the limit of the ratio and the command that
measures it again. What takes longer than a few minutes by itself is sampled there
(``bench_<name>.sample``). ``--write`` puts the table
between two marks of a page: ``python -m benchmarks --all --write docs/benchmarks.md``.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from argparse import ArgumentParser
from importlib import import_module
from pathlib import Path

from benchmarks.timing import Report

BEGIN, END = "<!-- written by python -m benchmarks -->", "<!-- end of what is written -->"


def main(arguments: list[str]) -> None:
    parser = ArgumentParser("python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--all", action="store_true", help="in one go, with one table at the end")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    asked = parser.parse_args(arguments)
    names: list[str] = asked.names
    if asked.write is not None and not asked.all:
        parser.error("--write needs --all")
    known = sorted(
        path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py")
    )
    if unknown := set(names) - set(known):
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if asked.all:
        if asked.write is not None:
            written(asked.write.read_text(encoding="utf-8"), "")  # a page without marks fails now
        table = in_one_table(names or known)
        print(table)
        if asked.write is not None:
            page = asked.write.read_text(encoding="utf-8")
            asked.write.write_text(written(page, table), encoding="utf-8")
        return
    for name in names or known:
        import_module(f"benchmarks.bench_{name}").main()


def written(page: str, table: str) -> str:
    """Return ``page`` with ``table`` between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"the page must have the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def in_one_table(names: list[str]) -> str:
    """Run these, and return all of their ratios in one table of Markdown."""
    start, lines = time.perf_counter(), []
    for name in names:
        module = import_module(f"benchmarks.bench_{name}")
        first = len(Report.made)
        getattr(module, "sample", module.main)()
        for report in Report.made[first:]:
            lines.append(f"| **{report.title}** | | | | | |")
            lines += [f"| {line} | `{name}` |" for line in report.lines]
    minutes = (time.perf_counter() - start) / 60
    when = f"{machine()}, {time.strftime('%d %B %Y')}, commit `{commit()}`, {minutes:.0f} minutes"
    return "\n".join(
        [
            f"{when}; the command is `python -m benchmarks` and the last column:",
            "",
            "| what | ours | peer | ratio | limit | command |",
            "|---|---|---|---:|---:|---|",
            *lines,
        ]
    )


def commit() -> str:
    """Return the commit that is measured."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


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
