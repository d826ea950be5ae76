"""The reference lists what is public: every ``__all__``, and all that the documentation imports."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src"
PRIVATE = {"skellam.cli"}
"""The command line has a page of its own and no Python interface."""
BLOCK = re.compile(r"^```python\b[^\n]*\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def module_name(path):
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def has_all(path):
    return any(
        isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for node in ast.parse(path.read_text()).body
    )


PACKAGES = sorted(
    name
    for path in SOURCES.rglob("*.py")
    if has_all(path) and "._" not in (name := module_name(path)) and name not in PRIVATE
)


def programs():
    """Yield the Python programs that users read: a page's blocks are one program."""
    yield from ((path, path.read_text()) for path in sorted((ROOT / "examples").rglob("*.py")))
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if path.parent.name == "contributing":
            continue  # adds names of its own
        yield path, "\n".join(BLOCK.findall(path.read_text()))


def used_names(program):
    """Return the full names under ``skellam`` that a program imports or takes from a module."""
    tree = ast.parse(program)
    known, found = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "skellam":
                    known[alias.asname or "skellam"] = alias.name if alias.asname else "skellam"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("skellam"):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                known[alias.asname or alias.name] = name
                found.add(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            head, *rest = ast.unparse(node).split(".")
            if head in known and all(part.isidentifier() for part in rest):
                name = public_part(known[head], rest)
                found |= {name} if name else set()
    return found


def public_part(name, attributes):
    """Return the name of the first attribute that is no module; None where ``name`` is none."""
    for attribute in attributes:
        if not inspect.ismodule(resolve(name)):
            return None
        name = f"{name}.{attribute}"
    return name


def resolve(name):
    head, _, tail = name.rpartition(".")
    try:
        return getattr(import_module(head), tail)
    except (AttributeError, ValueError):  # a package that nobody imported yet, or the first one
        return import_module(name)


def home(name):
    """Return where the object was defined, which is the same however it was imported."""
    value = resolve(name)
    return f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else name


def is_listed(name, entries):
    return name in entries or home(name) in entries


@pytest.fixture(scope="module")
def entries(site):
    """Return the names that have an entry of their own in the reference."""
    pages = (site / "reference").glob("*.html")
    return {
        name for page in pages for name in re.findall(r'id="(skellam[\w.]*)"', page.read_text())
    }


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_and_tab_completion_show_what_is_public_and_nothing_else(name):
    package = import_module(name)
    assert set(dir(package)) - {"__version__"} == set(package.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_has_an_entry_for_every_public_name(package, entries):
    assert package in entries
    names = [f"{package}.{name}" for name in import_module(package).__all__]
    assert [name for name in names if not is_listed(name, entries)] == []


def test_the_reference_has_an_entry_for_all_that_readers_are_told_to_import(entries):
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, program in programs()
        for name in used_names(program)
        if not is_listed(name, entries)
    }
    assert missing == set()


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_used_by_an_example_that_runs(package):
    """Blocks of pages run in `test_docs`, README's in `test_readme`, examples end to end."""
    used = {name for _, program in programs() for name in used_names(program)}
    homes = {home(name) for name in used}
    names = [f"{package}.{name}" for name in import_module(package).__all__]
    assert [name for name in names if name not in used and home(name) not in homes] == []


def test_names_are_found_through_every_kind_of_import():
    program = (
        "import skellam as sk\nimport skellam.noise\nfrom skellam import federated as fl\n"
        "from skellam.accounting import Skellam as S\n"
        "sk.Plan(1).calibrated()\nfl.train\nskellam.noise.IntegerNoise\nS(1).variance\n"
    )
    assert used_names(program) == {
        "skellam.Plan",
        "skellam.accounting.Skellam",
        "skellam.federated",
        "skellam.federated.train",
        "skellam.noise",
        "skellam.noise.IntegerNoise",
    }


def test_an_entry_shows_the_types_of_its_parameters_and_links_them(site):
    page = (site / "reference" / "accounting.html").read_text()
    start = page.index('id="skellam.accounting.epsilon"')
    signature = page[start : page.index("</pre>", start)]
    assert "float" in re.sub("<[^>]+>", "", signature)
    assert re.search(r'href="[^"]*#skellam\.accounting\.Mechanism"', signature)


def test_a_field_of_a_dataclass_has_a_typed_entry(entries, site):
    assert "skellam.Plan.clip" in entries
    page = (site / "reference" / "skellam.html").read_text()
    entry = page[page.index('id="skellam.Plan.clip"') :][:2000]
    assert "float" in re.sub("<[^>]+>", "", entry)
