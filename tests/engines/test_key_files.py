"""Files of keys that cannot be written."""

import pytest

from skellam.engines import durable
from skellam.engines.key_files import write_identity, write_roster
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
