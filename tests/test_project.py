"""The project's habits: one version, workflows that run the verbs, no dependency without a use."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest
import yaml

import branch_floors
import skellam

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = ROOT / ".github" / "workflows"
TOOLS = {
    "coverage": "pytest-cov's engine, configured in pyproject.toml",
    "import-linter": "the command lint-imports",
    "mkdocs-material": "the theme in mkdocs.yml",
    "mkdocstrings-python": "a plugin in mkdocs.yml",
    "pre-commit-hooks": "the commands of the first hooks",
    "pytest-cov": "make cover",
    "pytest-randomly": "a plugin of pytest that shuffles the tests",
    "pytest-xdist": "make test",
    "scipy-stubs": "types for mypy",
}
"""Dependencies that nothing imports or calls by name, and their use."""


def workflow(name):
    return yaml.safe_load((WORKFLOWS / name).read_text())


def commands(name):
    jobs = workflow(name)["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def test_the_version_stands_in_one_place():
    assert re.fullmatch(r"\d+\.\d+\.\d+([ab]\d+|rc\d+|\.dev\d+)?", skellam.__version__)
    assert PROJECT["dynamic"] == ["version"]
    elsewhere = re.compile(
        rf'^\s*(__)?version(__)?\s*[=:]\s*"?{re.escape(skellam.__version__)}"?\s*$', re.MULTILINE
    )
    holders = [
        path
        for pattern in ("*.toml", "*.cff", "*.yml", "src/**/*.py")
        for path in ROOT.glob(pattern)
        if elsewhere.search(path.read_text())
    ]
    assert holders == [ROOT / "src" / "skellam" / "__init__.py"]


def test_the_workflow_checks_and_tests_every_python_that_the_metadata_names():
    named = [
        line.rpartition(" ")[2] for line in PROJECT["classifiers"] if ":: Python :: 3." in line
    ]
    job = workflow("ci.yml")["jobs"]["check-and-test"]
    assert job["strategy"]["matrix"]["python"] == named == ["3.11", "3.12", "3.13"]
    assert {"make check", "make test", "make docs", "make cover", "make slow"} <= set(
        commands("ci.yml")
    )


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.name)
def test_the_verbs_of_a_workflow_are_those_of_the_makefile(path):
    makefile = (ROOT / "Makefile").read_text()
    verbs = [command.split()[1] for command in commands(path.name) if command.startswith("make ")]
    assert verbs
    assert [verb for verb in verbs if f"\n{verb}: " not in makefile] == []


def test_a_release_is_refused_when_its_tag_is_not_the_version():
    (check,) = [command for command in commands("release.yml") if command.startswith("test ")]
    for tag, code in ((f"v{skellam.__version__}", 0), ("v9.9.9", 1)):
        outcome = subprocess.run(
            ["bash", "-euc", check],
            cwd=ROOT,
            env={"GITHUB_REF_NAME": tag, "PATH": "/usr/bin:/bin"},
            check=False,
        )
        assert outcome.returncode == code


def declared():
    extras = PROJECT["optional-dependencies"].values()
    for requirement in (*PROJECT["dependencies"], *chain.from_iterable(extras)):
        name = re.match(r"[\w.-]+", requirement)[0]
        if name != "skellam":
            yield name


def test_every_dependency_is_imported_called_or_explained():
    folders = ("src", "tests", "experiments", "benchmarks", "examples", "docs/hooks")
    code = "\n".join(
        path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py")
    )
    tools = "\n".join((ROOT / name).read_text() for name in ("Makefile", ".pre-commit-config.yaml"))
    modules = {}
    for module, names in packages_distributions().items():
        for name in names:
            modules.setdefault(name.lower().replace("_", "-"), set()).add(module)

    def is_used(name):
        imported = "|".join(map(re.escape, modules.get(name.lower(), {name})))
        return (
            re.search(
                rf"^\s*(import|from) ({imported})\b|importorskip\(\"({imported})\"",
                code,
                re.MULTILINE,
            )
            or re.search(
                rf"\$\(BIN\)/{name}\b|\.venv/bin/{name}\b|\"-m\", \"{name}\"", tools + code
            )
            or name in TOOLS
        )

    assert [name for name in declared() if not is_used(name)] == []
    assert sorted(set(TOOLS) - set(declared())) == []


def test_every_package_that_the_sources_import_is_declared():
    found = {
        (node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name)
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    names = {name.lower().replace("_", "-") for name in declared()}
    homes = packages_distributions()
    missing = [
        top
        for top in sorted({name.partition(".")[0] for name in found})
        if top not in {*sys.stdlib_module_names, "skellam"}
        and not names & {home.lower().replace("_", "-") for home in homes[top]}
    ]
    assert missing == []


def test_no_data_path_leads_out_of_the_project_by_default():
    outside = re.compile(r"\.\./shared|\"shared\" / \"data\"")
    files = [
        path
        for folder in ("src", "tests", "experiments", "benchmarks", "examples", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".sh"} and path != Path(__file__)
    ]
    assert [path for path in files if outside.search(path.read_text())] == []


def summary(covered, total):
    return {"summary": {"covered_branches": covered, "num_branches": total}}


def test_a_package_below_its_floor_of_branches_fails(tmp_path, capsys):
    files = {f"src/{name}/a.py": summary(99, 100) for name in branch_floors.floors()}
    path = tmp_path / "coverage.json"
    path.write_text(branch_floors.json.dumps({"files": files}))
    assert branch_floors.main(path) == 0
    files["src/skellam/codec/a.py"] = summary(94, 100)
    path.write_text(branch_floors.json.dumps({"files": files}))
    assert branch_floors.main(path) == 1
    assert "BELOW" in capsys.readouterr().out


def test_a_floor_of_a_package_that_the_report_lacks_is_an_error():
    with pytest.raises(SystemExit, match="skellam/codec"):
        branch_floors.branches({"files": {}}, "skellam/codec")


@pytest.mark.slow
def test_the_hooks_find_a_file_that_breaks_them(tmp_path):
    """Each hook that checks text fails on a file that it exists for."""
    tools = Path(sys.executable).parent
    bad = {
        "trailing-whitespace-fixer": ("a.txt", "blank \n"),
        "end-of-file-fixer": ("b.txt", "no newline"),
        "codespell": ("c.md", "t" + "eh sum\n"),
        "check-yaml": ("d.yml", "a: [\n"),
        "check-toml": ("e.toml", "a = \n"),
    }
    for tool, (name, text) in bad.items():
        path = tmp_path / name
        path.write_text(text)
        assert subprocess.run([tools / tool, path], capture_output=True, check=False).returncode, (
            tool
        )
    path = tmp_path / "w.yml"
    path.write_text("on: push\njobs: {a: {steps: []}}\n")
    outcome = subprocess.run(
        [tools / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", path],
        capture_output=True,
        check=False,
    )
    assert outcome.returncode
