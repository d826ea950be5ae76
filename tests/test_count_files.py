"""How far a reader walks: files that run for one call, files in all, modules with one importer."""

import ast
import threading

import numpy as np
import pytest

import count_files

MAX_FILES_RUN = {
    "plan.calibrated": 20,
    "codec.encode": 9,
    "accounting.epsilon": 9,
    "fl.train round": 40,
    "Flower client round": 40,
}
MAX_FILES = 130
NOT_COUNTED = ("skellam.twoserver", "skellam.engines.helper")
"""The second protocol and its service: packages that came after the limit was set."""
MAX_LINES = 525
"""A file tells one story in about 500 lines."""
SMALL = 60
"""Lines up to which a module with a single importer belongs into that importer."""


@pytest.mark.slow
@pytest.mark.parametrize("call", MAX_FILES_RUN)
def test_few_files_run_for_one_call(call):
    assert len(count_files.count(call)) <= MAX_FILES_RUN[call]


@pytest.mark.slow
def test_the_sources_have_few_files():
    names = [name for name in count_files.sources() if not name.startswith(NOT_COUNTED)]
    assert len(names) <= MAX_FILES


@pytest.mark.slow
def test_no_small_module_has_a_single_importer():
    assert count_files.lone_modules(SMALL) == []


def test_no_file_is_long():
    lengths = {
        name: len(path.read_text().splitlines()) for name, path in count_files.sources().items()
    }
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def test_every_limit_belongs_to_a_call():
    assert set(MAX_FILES_RUN) == set(count_files.CALLS)


def test_a_trace_sees_functions_of_the_sources_in_every_thread_and_nothing_else():
    from skellam import _checks, vectors

    thread = threading.Thread(target=lambda: vectors.Reals(np.ones(1)))
    with count_files.Trace().active() as trace:
        ast.parse("1")
        thread.start()
        thread.join()
    assert "vectors.py" in trace.names()
    assert all((count_files.SOURCES / name).exists() for name in trace.names())
    with count_files.Trace(without=[_checks.octets]).active() as trace:
        _checks.octets("seed", bytes(32), 32)
    assert trace.names() == []


def test_an_import_inside_a_function_counts_as_an_importer():
    found = count_files.importers()
    assert "skellam" in found["skellam.plan"]  # Plan is imported in __getattr__
    assert "skellam.errors" not in found["skellam.errors"]
