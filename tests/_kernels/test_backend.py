import subprocess
import sys

import numpy as np
import pytest

from skellam import _kernels
from skellam._kernels import _numba, _numpy
from skellam.errors import DomainError, MissingExtraError


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def fresh(monkeypatch):
    monkeypatch.delenv("SKELLAM_KERNELS", raising=False)
    monkeypatch.setattr(_kernels._meter, "elements", 0)


@pytest.mark.usefixtures("fresh")
def test_little_work_is_done_by_numpy():
    assert _kernels._for_integers(1000) is _numpy
    assert _kernels._for_floats((1 << 20) - 1) is _numpy


@pytest.mark.usefixtures("fresh")
def test_work_that_repays_the_start_is_done_by_numba():
    assert _kernels._for_integers(1 << 28) is _numpy
    assert _kernels._for_integers(1) is _numba
    assert _kernels._for_floats(1 << 20) is _numba


@pytest.mark.parametrize(("name", "module"), [("numpy", _numpy), ("numba", _numba)])
def test_the_environment_forces_a_back_end(name, module, monkeypatch):
    monkeypatch.setenv("SKELLAM_KERNELS", name)
    assert _kernels._for_integers(1) is module
    assert _kernels._for_floats(1 << 30) is module


def test_an_unknown_back_end_is_refused(monkeypatch):
    monkeypatch.setenv("SKELLAM_KERNELS", "fortran")
    with pytest.raises(DomainError, match="numpy or numba"):
        _kernels.hadamard(np.ones(2, dtype=np.float32))


def test_numba_that_is_forced_but_missing_names_the_extra(monkeypatch):
    monkeypatch.setenv("SKELLAM_KERNELS", "numba")
    monkeypatch.setattr(_kernels, "_numba_is_installed", lambda: False)
    with pytest.raises(MissingExtraError, match=r"skellam\[fast\]"):
        _kernels._for_integers(1)


def test_without_numba_numpy_does_all_the_work(monkeypatch):
    monkeypatch.delenv("SKELLAM_KERNELS", raising=False)
    monkeypatch.setattr(_kernels, "_numba_is_installed", lambda: False)
    assert _kernels._for_floats(1 << 30) is _numpy


def test_drawing_a_little_does_not_import_numba():
    code = (
        "import sys; from skellam import SystemEntropy; from skellam.noise import SkellamSampler;"
        "SkellamSampler(3).draw(100_000, entropy=SystemEntropy());"
        "print(sorted({'numba', 'scipy'} & set(sys.modules)))"
    )
    assert run(code) == "[]"


def test_numba_works_where_no_cache_can_be_written():
    code = (
        "import numba.core.caching as c\n"
        "c.CacheImpl._locator_classes = []\n"
        "import numpy as np\n"
        "from skellam._kernels import hadamard\n"
        "x = np.ones(2, dtype=np.float32); hadamard(x); print(x)\n"
    )
    assert run(code, SKELLAM_KERNELS="numba", HOME="/nonexistent") == "[2. 0.]"
