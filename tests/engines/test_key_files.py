"""Files of keys that cannot be written, or lost a part."""

from itertools import combinations

import pytest

from skellam.engines import durable
from skellam.engines.key_files import read_identity, read_public, write_identity, write_roster
from skellam.entropy import SystemEntropy
from skellam.errors import DataError
from skellam.protocol.identity import Identity

ME = Identity.generate(3, entropy=SystemEntropy())


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_identity(path, ME),
        lambda path: write_roster(path, [path.parent.parent / "me.pub"]),
        durable.make_folder,
    ],
)
def test_what_cannot_be_written_is_named_with_what_to_do(tmp_path, write):
    write_identity(tmp_path / "me", ME)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot write .*keys: Not a directory; .*try again"):
        write(tmp_path / "file" / "keys")


def test_a_public_key_that_cannot_be_written_leaves_the_secret_one(tmp_path):
    (tmp_path / "me.pub").mkdir()
    with pytest.raises(DataError, match=r"cannot write .*me\.pub"):
        write_identity(tmp_path / "me", ME)
    assert (tmp_path / "me").exists()


def test_no_gap_in_a_key_file_is_read_as_another_key(tmp_path):
    """The digest is as long as a key: without what is between the two it would be read as one."""
    secret = tmp_path / "3.key"
    public = write_identity(secret, ME)
    for path, read in ((secret, lambda path: read_identity(path).key), (public, read_public)):
        whole, state = path.read_bytes(), read(path)
        for start, end in combinations(range(len(whole)), 2):
            path.write_bytes(whole[:start] + whole[end:])
            try:
                found = read(path)
            except DataError:
                continue
            assert found == state
