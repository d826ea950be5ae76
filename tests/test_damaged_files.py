"""Every file that the library reads with bytes that changed, as `benchmarks.damaged_files` has."""

import pytest
from benchmarks.damaged_files import KINDS, File, damaged_bytes

from skellam.engines.key_files import read_identity
from skellam.errors import DataError


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_bytes_give_an_error_of_ours_or_the_same_state(tmp_path, kind):
    """A sample; ``python -m benchmarks reliability`` flips 20,000 bits of each file."""
    for file in KINDS[kind](tmp_path):
        tally = damaged_bytes(file, flips=100, seed=1)
        assert tally.failed == []
        assert tally.cases >= 130
        assert tally.refused > 0


def test_another_state_is_a_failure_where_a_file_has_a_digest(tmp_path):
    path = tmp_path / "number"
    path.write_text("1234")
    tally = damaged_bytes(File("number", path, path.read_bytes), flips=10, seed=1)
    assert len(tally.failed) == tally.cases
    tally = damaged_bytes(File("number", path, path.read_bytes, free=True), flips=10, seed=1)
    assert (tally.other, tally.failed) == (tally.cases, [])


def test_a_foreign_error_is_a_failure(tmp_path):
    path = tmp_path / "number"
    path.write_text("1234")
    tally = damaged_bytes(File("number", path, lambda: int(path.read_bytes())), flips=32, seed=1)
    assert any("ValueError" in case for case in tally.failed)


def test_a_key_file_without_a_digest_is_one_of_an_earlier_version(tmp_path):
    path = tmp_path / "1.key"
    text = '{"skellam-identity": 1, "number": 3, "key": "%s"%s}'
    path.write_text(text % ("ab" * 32, ""))
    assert read_identity(path).number == 3
    path.write_text(text % ("ab" * 32, ', "sha256": "00"'))
    with pytest.raises(DataError, match=r"1.key: the file was changed"):
        read_identity(path)
