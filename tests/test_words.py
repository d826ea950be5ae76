"""Names are words of the field, modules begin with a label, one public name is one thing."""

import ast
import dataclasses
import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src"
PARTS = {
    "accountant or candidate": "route routes",
    "bernoulli": "heads",
    "clip_count": "within beside balance",
    "commitments": "pledge pledges",
    "coordinate_bound": "largest",
    "dropouts": "gone silent vanish vanished",
    "index, path or offset": "place places",
    "integer": "whole",
    "ledger": "book",
    "max_": "most",
    "messages": "letter letters post",
    "min_": "least fewest",
    "package, project, user, log": "room rooms house newcomer tell tells lumpy",
    "participant_list": "roll",
    "participation_probability": "coin",
    "population_size": "people",
    "round_config": "invitation",
    "server phase": "desk",
    "share_keys": "enrol unlock dealing",
    "simulation": "virtual bus",
    "spend": "purse payer pay pays paid",
    "stage_log": "journal",
}
"""Words that are no part of a name, by what to write instead."""
NAMES = {
    "beta1, beta2, eps": "floor",
    "client_state": "memory",
    "fault script": "script",
    "round_": "this",
    "sent_dim, padded_dim, message_len": "kept carried rotated padded",
    "unmasked, non_private": "clear plain",
}
"""Words that may be a part of a name, and that of a local variable, but no name that others use."""
IN_PACKAGES = {
    "codec plan": {"message_len": "length", "relative_error": "loss"},
    "federated tasks": {"learning_rate": "rate"},
    "federated tasks plan": {
        "learning_rate": "lr",
        "batch_size": "batch",
        "beta1": "first",
        "beta2": "second",
    },
}
"""Words of two meanings: no parameter and no field where they would have the other one."""
MEANT = {("skellam/engines/workers.py", "memory"), ("skellam/engines/leader.py", "_post")}
"""The memory of a machine, and the method of HTTP."""
RIDDLE = re.compile(r"(What|Who|Whether|How|When|Where|Why|Which)\b")


def trees():
    for path in sorted(SOURCES.rglob("*.py")):
        yield path.relative_to(SOURCES), ast.parse(path.read_text())


def named(tree):
    """Yield the names that a module introduces: functions, classes, parameters, variables."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case _:
                pass


def is_special(name):
    return name.startswith("__") and name.endswith("__")


def fields(tree):
    """Yield functions, classes, parameters, and annotated names of class bodies."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        match node:
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.ClassDef(body=body):
                for inner in body:
                    if isinstance(inner, ast.AnnAssign):
                        yield inner.lineno, ast.unparse(inner.target)


def words(name):
    """Return the lower-case words of a name in snake or camel case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def offences(names, parts, wholes):
    banned = {word: right for right, group in parts.items() for word in group.split()}
    alone = {word: right for right, group in wholes.items() for word in group.split()}
    for line, name in names:
        if is_special(name):
            continue
        for word in words(name):
            if word in banned:
                yield line, name, banned[word]
        if name.strip("_").lower() in alone:
            yield line, name, alone[name.strip("_").lower()]


def rules(path):
    """Return the words that are no public name in the package of ``path``."""
    yield NAMES
    for packages, names in IN_PACKAGES.items():
        if path.parts[1] in packages.split():
            yield names


def found_in_sources():
    for path, tree in trees():
        file = [(1, part) for part in path.with_suffix("").parts]
        listed = list(offences([*file, *named(tree)], PARTS, {}))
        for names in rules(path):
            listed += offences(fields(tree), {}, names)
        for line, name, right in listed:
            if (path.as_posix(), name) not in MEANT:
                yield f"{path}:{line}: {name} (write {right})"


def test_no_name_is_a_word_of_our_own():
    assert sorted(set(found_in_sources())) == []


def test_a_plan_states_targets_and_no_bare_epsilon():
    from skellam import CalibratedPlan, Plan

    for kind in (Plan, CalibratedPlan):
        assert not {"epsilon", "delta"} & {field.name for field in dataclasses.fields(kind)}
        assert not hasattr(kind, "epsilon")


def test_modules_begin_with_a_label_and_not_with_a_riddle():
    riddles = [
        str(path)
        for path, tree in trees()
        if tree.body and RIDDLE.match(ast.get_docstring(tree) or "What")
    ]
    assert riddles == []


@pytest.mark.slow
def test_no_two_public_classes_have_one_name():
    homes = defaultdict(set)
    for path, tree in trees():
        module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        if "._" in module or not any(ast.unparse(n).startswith("__all__ =") for n in tree.body):
            continue
        loaded = import_module(module)
        for name in loaded.__all__:
            value = getattr(loaded, name)
            if isinstance(value, type):
                homes[name].add(f"{value.__module__}.{value.__qualname__}")
    assert {name: sorted(where) for name, where in homes.items() if len(where) > 1} == {}


def test_words_are_found_in_every_kind_of_name():
    tree = ast.parse(
        "class PurseBook:\n    batch: int\n"
        "def pay_all(most_rows, *, this): largest = 1\nalmost = within_clip = route2 = 1\n"
    )
    names = {name for _, name, _ in offences(named(tree), PARTS, NAMES)}
    assert names == {"PurseBook", "pay_all", "most_rows", "this", "largest", "within_clip"}
    names = IN_PACKAGES["federated tasks plan"]
    assert [name for _, name, _ in offences(fields(tree), {}, names)] == ["batch"]
    assert list(offences([(1, "__post_init__")], PARTS, NAMES)) == []
