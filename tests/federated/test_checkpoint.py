import stat
from dataclasses import replace

import numpy as np
import pytest

from skellam.errors import DataError
from skellam.federated.checkpoint import Checkpoint
from skellam.federated.server import adam
from skellam.plan import AdaptiveClip

STATE = adam(rate=0.1).init(np.arange(5, dtype=np.float32))
CLIP = AdaptiveClip(clip=0.1234, target=0.6, rate=0.3)
CHECKPOINT = Checkpoint(7, STATE, bytes(range(32)), "digest", spends=9, clip=CLIP)


def test_a_checkpoint_reads_back_and_is_the_operators_alone(tmp_path):
    path = tmp_path / "checkpoint.npz"
    CHECKPOINT.save(path)
    read = Checkpoint.load(path)
    assert (read.round, read.run, read.fingerprint, read.spends) == (
        7,
        bytes(range(32)),
        "digest",
        9,
    )
    assert np.array_equal(read.state.model, STATE.model)
    assert read.clip == CLIP
    assert len(read.state.memory) == 2
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
