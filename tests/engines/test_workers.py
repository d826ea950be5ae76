import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import skellam as sk
from skellam.engines import workers
from skellam.engines.local import Round, secure, unmasked
from skellam.errors import ShapeError, WorkerError
from skellam.plan import Plan

D = 1 << 17
PLAN = Plan(
    dimension=D, clip=1.0, cohort=8, rounds=1, sampling="all", bits=12, dropout=0.3
).with_noise(0.5)
ROUND = Round(number=3, model=bytes(32), members=tuple(range(8)), dropouts=(5,))
LASTING = (
    Plan(dimension=D, clip=1.0, cohort=8, rounds=1, sampling="all", bits=12)
    .with_noise(0.5)
    .codec(public_seed=bytes(32))
)
"""Noise that is not removed, drawn from entropy."""
BARE = (
    Plan(dimension=D, clip=1.0, cohort=8, rounds=1, sampling="all", bits=20, noise="none")
    .with_noise(0.0)
    .codec(public_seed=bytes(32))
)
SECRET = sk.SystemEntropy()

pytestmark = pytest.mark.skipif(workers.available() == 0, reason="starts no processes here")


NEAR = 1e-4
"""More than rounding ever moves a coordinate of so few."""


def secret(_):
    return SECRET


def replay(context):
    return sk.SeededEntropy(bytes(32), context)


def update(number):
    return np.full(D, 1e-4 * number, dtype=np.float32)


def encoded(vectors, *, codec=BARE, processes=2):
    seed = codec.new_noise_seed(entropy=SECRET) if codec.spec.removable else None
    jobs = ((x, seed) for x in vectors)
    return [np.array(m.values, copy=True) for m in workers.encode(codec, jobs, processes=processes)]


def decoded(messages, codec=BARE):
    residues = [sk.Residues(m, codec.spec.bits, codec.label) for m in messages]
    return codec.decode(codec.add(residues)).values


def processes():
    """Return the processes that wait for work."""
    return [worker._process.pid for worker in workers._idle]


def test_the_sum_of_a_round_is_the_truth_and_its_noise():
    """2**17 coordinates: 6 deviations of their mean and 26 of their spread, false alarms in 5e8."""
    everybody = Round(number=3, model=bytes(32), members=tuple(range(8)))
    outcome = unmasked(PLAN, everybody, update, entropy=secret)
    truth = sum(map(update, everybody.survivors))
    error = outcome.total.values - truth
    deviation = PLAN.cohort * np.sqrt(PLAN.error.total)
    assert abs(error.mean()) < 6 * deviation / np.sqrt(D)
    assert error.std() == pytest.approx(deviation, rel=0.05)
    assert not outcome.total.replayable
    assert processes()


def test_noise_is_never_the_same_twice():
    first, second = encoded([update(1), update(1)], codec=LASTING)
    third, fourth = encoded([update(1), update(1)], codec=LASTING, processes=1)
    for one, other in [(first, second), (second, third), (third, fourth)]:
        assert np.mean(one == other) < 0.5


def test_messages_come_in_the_order_of_the_jobs_with_few_under_way():
    taken = []

    def jobs():
        for n in range(12):
            taken.append(n)
            yield np.full(D, 2e-3 * (n % 2), dtype=np.float32), None

    for n, message in enumerate(workers.encode(BARE, jobs(), processes=2)):
        assert len(taken) <= n + 3
        moved = BARE.decode(message).values
        assert np.abs(moved - 2e-3 * (n % 2)).max() < NEAR


def test_an_update_that_is_overwritten_by_the_next_counts_as_it_was():
    buffer = np.empty(D, dtype=np.float32)

    def reusing():
        for n in range(8):
            buffer[:] = 1e-3 if n == 0 else 0.0
            yield buffer

    assert np.abs(decoded(encoded(reusing())) - 1e-3).max() < NEAR


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_kind_of_float_is_handed_over(dtype):
    vectors = [np.full(D, 1e-3, dtype=dtype)] * 3
    assert np.abs(decoded(encoded(vectors)) - 3e-3).max() < NEAR


@pytest.mark.parametrize("lost", [None, np.full(D, np.nan, dtype=np.float32)])
def test_nothing_and_what_is_not_finite_count_as_zeros_with_noise(lost):
    found = decoded(encoded([update(1), lost, lost, update(2)]))
    assert np.abs(found - 3e-4).max() < NEAR
    noisy = encoded([lost, lost], codec=LASTING)
    assert np.mean(noisy[0] == noisy[1]) < 0.5


def test_longer_vectors_find_room_in_a_process_that_had_shorter_ones():
    long = sk.Plan(dimension=4 * D, clip=1.0, cohort=8, rounds=1, sampling="all").with_noise(0.5)
    codec = long.codec(public_seed=bytes(32))
    encoded([update(1)], processes=1)
    before = processes()
    assert len(encoded([np.ones(4 * D)], codec=codec, processes=1)[0]) == codec.spec.message_len
    assert processes() == before


def test_rounds_use_the_same_processes_and_a_seeded_one_uses_none():
    unmasked(PLAN, ROUND, update, entropy=secret)
    before = processes()
    unmasked(PLAN, ROUND, update, entropy=secret)
    assert sorted(processes()) == sorted(before)
    workers.end()
    one, other = (unmasked(PLAN, ROUND, update, entropy=replay) for _ in range(2))
    safe = secure(PLAN, ROUND, update, entropy=replay)
    assert not processes()
    assert np.array_equal(one.total.values, other.total.values)
    assert np.array_equal(one.total.values, safe.total.values)


def test_one_client_with_a_seed_marks_the_sum():
    outcome = unmasked(
        PLAN, ROUND, update, entropy=lambda who: replay(who) if who == "client/6" else SECRET
    )
    assert outcome.total.replayable


@pytest.mark.parametrize("failing", [0, 4])
def test_an_error_of_the_caller_leaves_nothing_under_way(failing):
    workers.end()

    def stops(number):
        if number == failing:
            raise KeyError(number)
        return update(number)

    with pytest.raises(KeyError) as caught:
        unmasked(PLAN, ROUND, stops, entropy=secret)
    assert caught.value.args == (failing,)
    assert len(processes()) <= 1
    assert len(encoded([update(1)] * 4)) == 4


def test_a_wrong_length_is_refused():
    with pytest.raises(ShapeError, match="131072"):
        unmasked(PLAN, ROUND, lambda _: np.zeros(3), entropy=secret)


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_process_that_is_killed_at_rest_is_replaced():
    workers.end()
    encoded([update(1)], processes=1)
    (victim,) = processes()
    kill(victim)
    assert len(encoded([update(1)], processes=1)) == 1
    assert len(processes()) == 1
    assert victim not in processes()


def test_a_process_that_is_killed_at_work_is_reported():
    workers.end()
    encoded([update(1)], processes=1)
    (victim,) = processes()

    def vectors():
        os.kill(victim, signal.SIGSTOP)
        yield update(1)
        kill(victim)
        yield update(2)

    messages = workers.encode(BARE, ((x, None) for x in vectors()), processes=2)
    with pytest.raises(WorkerError, match=r"status -9 .*nothing was released"):
        list(messages)
    assert not processes()
    assert len(encoded([update(1)])) == 1


@pytest.mark.parametrize("stopped", ["at rest", "at work"])
def test_a_stopped_process_ends_the_round_with_an_error_and_is_ended(monkeypatch, stopped):
    monkeypatch.setattr(workers, "PATIENCE", 1.5)
    workers.end()
    encoded([update(1)], processes=1)
    (victim,) = processes()

    def vectors():
        if stopped == "at rest":
            os.kill(victim, signal.SIGSTOP)
        yield update(1)
        os.kill(victim, signal.SIGSTOP)

    messages = workers.encode(LASTING, ((x, None) for x in vectors()), processes=1)
    with pytest.raises(WorkerError, match=r"has not computed .*nothing was released"):
        list(messages)
    assert gone(victim)
    assert not processes()
    assert len(encoded([update(1)])) == 1


def descriptors():
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("failing", ["memfd_create", "Pipe", "Popen"])
def test_where_no_process_starts_nothing_leaks_and_this_one_encodes(monkeypatch, failing):
    workers.end()
    before = descriptors()

    def fails(*_, **__):
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(os if failing == "memfd_create" else workers, failing, fails)
    messages = encoded([update(n) for n in range(8)])
    assert np.allclose(decoded(messages), sum(update(n) for n in range(8)), atol=NEAR)
    assert descriptors() == before


def test_where_the_second_process_does_not_start_the_first_encodes_all(monkeypatch):
    workers.end()
    encoded([update(1)], processes=1)

    def fails(*_, **__):
        raise OSError(errno.EAGAIN, "no more")

    monkeypatch.setattr(workers, "Popen", fails)
    messages = encoded([update(n) for n in range(8)], processes=3)
    assert np.allclose(decoded(messages), sum(update(n) for n in range(8)), atol=NEAR)
    assert len(processes()) == 1


def test_a_process_that_ends_before_it_serves_leaves_its_vector_to_this_one(monkeypatch):
    workers.end()
    before = descriptors()
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    messages = encoded([update(n) for n in range(4)])
    assert np.allclose(decoded(messages), sum(update(n) for n in range(4)), atol=NEAR)
    workers.end()
    assert descriptors() == before


SCRIPT = """
import os, numpy as np, skellam as sk
from skellam.engines import workers
from skellam.engines.local import Round, unmasked
plan = sk.Plan(dimension=1 << 17, clip=1.0, cohort=8, rounds=1, sampling="all").with_noise(0.5)
entropy = sk.SystemEntropy()
def run():
    round_ = Round(0, bytes(32), tuple(range(8)))
    return unmasked(plan, round_, lambda _: np.zeros(1 << 17), entropy=lambda _: entropy)
run()
print(*(worker._process.pid for worker in workers._idle), flush=True)
{last}
"""


def script(last):
    command = [sys.executable, "-W", "error", "-c", SCRIPT.format(last=last)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert not ended.stderr
    return ended.returncode, list(map(int, ended.stdout.split()))


def gone(pid):
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize(
    ("last", "status"), [("", 0), ("os.kill(os.getpid(), 9)", -9), ("os._exit(3)", 3)]
)
def test_no_process_outlives_the_one_it_works_for(last, status):
    code, pids = script(last)
    assert code == status
    assert len(pids) == min(workers.available(), 8)
    assert all(map(gone, pids))


@pytest.mark.parametrize("working", ["starting", "encoding"])
def test_processes_of_a_killed_caller_write_no_traceback(working):
    """`script` asserts that nothing is written to stderr; the pipe is open until all have ended."""
    again = "workers.end()" if working == "starting" else ""
    last = f"""
{again}
def killed():
    yield np.zeros(1 << 17), None
    yield np.zeros(1 << 17), None
    os.kill(os.getpid(), 9)
list(workers.encode(plan.codec(public_seed=bytes(32)), killed(), processes=4))
"""
    assert script(last)[0] == -9


def test_a_forked_child_starts_processes_of_its_own():
    last = """
if (child := os.fork()) == 0:
    own = run() and {worker._process.pid for worker in workers._idle}
    workers.end()
    os._exit(0 if own else 1)
print(os.waitpid(child, 0)[1])
run()
print(*(worker._process.pid for worker in workers._idle), flush=True)
"""
    code, found = script(last)
    several = min(workers.available(), 8)
    before, status, after = found[:several], found[several], found[several + 1 :]
    assert code == status == 0
    assert sorted(before) == sorted(after)
