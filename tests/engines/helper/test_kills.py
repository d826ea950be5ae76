import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engines.helper.kill_servers import agreed
from oracles.helper_fleet import truth
from skellam.engines.helper import HelperConfig
from skellam.engines.helper.service import verify
from skellam.twoserver.client import ClientState

SCRIPT = Path(__file__).with_name("kill_servers.py")
RELEASES = 20  # rounds released between the kills, at least


def kill(folder, kills, band):
    command = [
        sys.executable,
        str(SCRIPT),
        str(folder),
        str(kills),
        str(RELEASES),
        ",".join(map(str, band)),
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "band"), [(200, (1,)), (60, (3, 2, 1))])
def test_nothing_is_lost_or_answered_twice_however_often_the_servers_are_killed(
    tmp_path, kills, band
):
    status, *killed = kill(tmp_path, kills, band)
    assert status == 0
    assert min(killed) >= kills
    answers, released = (
        [line.split() for line in (tmp_path / name).read_text().splitlines()]
        for name in ("answers", "released")
    )
    # No round has two answers, and none was opened as two sums.
    for lines in (answers, released):
        assert len(dict(map(tuple, lines))) == len(set(map(tuple, lines)))
    rounds = sorted({int(round_) for round_, _ in released})
    assert len(rounds) >= RELEASES
    # Every sum is right: noise of both servers, 16 draws a round, fails with a chance below 1e-18.
    # With a band an estimate times c_0 has at most 1.4 times their variance.
    constants = agreed(band)
    for _, octets in released:
        error = np.frombuffer(bytes.fromhex(octets)) - truth(constants, (10, 11, 12))
        assert np.abs(band[0] * error).max() < 10 * np.sqrt(1.4 * 2 * constants.variance)
    # No participation and no spend is lost: the helper's record has every round that was opened,
    # the ledger every participation (verify), and every client's own record all of them.
    (run,) = verify(HelperConfig.load(tmp_path / "helper"))
    assert run.max_participations >= len(rounds)
    assert run.head.count >= len(rounds)
    for number in (10, 11, 12):
        state = ClientState.from_bytes((tmp_path / f"client-{number}.state").read_bytes())
        (record,) = state.runs
        assert set(rounds) <= set(record.rounds)
        assert state.participations >= run.max_participations
    assert not (tmp_path / "refused").exists()
