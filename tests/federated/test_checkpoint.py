import errno
import os
import stat
from dataclasses import replace

import numpy as np
import pytest

from skellam.accounting.ledger import Head
from skellam.errors import DataError
from skellam.federated.aggregation import adam
from skellam.federated.history import Checkpoint
from skellam.plan import AdaptiveClip

HEAD = Head(9, "ab" * 32)
STATE = adam(learning_rate=0.1).init(np.arange(5, dtype=np.float32))
CLIP = AdaptiveClip(clip=0.1234, target=0.6, learning_rate=0.3)
CHECKPOINT = Checkpoint(7, STATE, bytes(range(32)), "digest", head=HEAD, clip=CLIP)


def test_a_checkpoint_reads_back_and_is_the_operators_alone(tmp_path):
    path = tmp_path / "checkpoint.npz"
    CHECKPOINT.save(path)
    read = Checkpoint.load(path)
    assert (read.round, read.run, read.fingerprint, read.head) == (
        7,
        bytes(range(32)),
        "digest",
        HEAD,
    )
    assert np.array_equal(read.state.model, STATE.model)
    assert read.clip == CLIP
    assert len(read.state.moments) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_clip_that_does_not_adapt_is_not_kept(tmp_path):
    path = tmp_path / "checkpoint.npz"
    replace(CHECKPOINT, clip=None).save(path)
    assert Checkpoint.load(path).clip is None


@pytest.mark.parametrize("keep", [0, 10, 200, -1])
def test_a_damaged_checkpoint_is_refused(tmp_path, keep):
    path = tmp_path / "checkpoint.npz"
    CHECKPOINT.save(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match="checkpoint"):
        Checkpoint.load(path)


def test_the_last_checkpoint_stays_if_the_next_one_is_cut_off(tmp_path):
    path = tmp_path / "checkpoint.npz"
    CHECKPOINT.save(path)
    (tmp_path / "checkpoint.npz.new").write_bytes(b"torn")
    assert Checkpoint.load(path).round == 7
    CHECKPOINT.save(path)
    assert Checkpoint.load(path).round == 7


def test_a_run_that_spends_nothing_names_no_ledger(tmp_path):
    path = tmp_path / "checkpoint.npz"
    replace(CHECKPOINT, head=None).save(path)
    assert Checkpoint.load(path).head is None


def test_no_flipped_bit_and_no_cut_loads_another_state(tmp_path):
    """Of 19,408 flips in a checkpoint of version 0.1, 139 loaded another state."""
    path = tmp_path / "checkpoint.npz"
    CHECKPOINT.save(path)
    whole = path.read_bytes()
    for index in range(0, len(whole), 3):
        for changed in (
            whole[:index] + bytes([whole[index] ^ (1 << index % 8)]) + whole[index + 1 :],
            whole[:index],
            whole[:index] + whole[index + 1 :],
        ):
            path.write_bytes(changed)
            with pytest.raises(DataError, match=r"checkpoint.*(restore|start)"):
                Checkpoint.load(path)


def test_a_checkpoint_of_version_1_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "checkpoint.npz"
    np.savez(path, round=7, step=0, model=STATE.model, run=np.zeros(32, np.uint8), spends=9)
    with pytest.raises(DataError, match=r"version 0\.1.*another folder"):
        Checkpoint.load(path)


def test_a_checkpoint_stays_an_archive_that_numpy_reads(tmp_path):
    path = tmp_path / "checkpoint.npz"
    CHECKPOINT.save(path)
    with np.load(path) as archive:
        assert archive["ledger_digest"] == HEAD.digest


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_checkpoint_that_cannot_be_written_names_its_file_and_keeps_the_old_one(
    tmp_path, monkeypatch, code
):
    path = tmp_path / "checkpoint.npz"
    CHECKPOINT.save(path)

    def failing(*_):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing)
        with pytest.raises(DataError, match=r"checkpoint\.npz.*resume"):
            replace(CHECKPOINT, round=8).save(path)
    assert Checkpoint.load(path).round == 7
