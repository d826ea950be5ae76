import os
import threading

import numpy as np
import pytest

import skellam as sk
from skellam.engines import workers
from skellam.engines.local import Round, clear, secure
from skellam.plan import Plan

D = 1 << 17
PLAN = Plan(
    dimension=D, clip=1.0, cohort=8, rounds=1, sampling="all", bits=12, dropout=0.3
).with_noise(0.5)
THIS = Round(number=3, model=bytes(32), members=tuple(range(8)), silent=(5,))

needs_cores = pytest.mark.skipif(workers.available() == 0, reason="one core starts no threads")


def replay(context):
    return sk.SeededEntropy(bytes(32), context)


def update(number):
    return np.full(D, 1e-4 * number, dtype=np.float32)


@pytest.fixture
def one_core():
    """Bind this thread to one core, for which the engine starts no threads."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


def who():
    return threading.current_thread().name


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be bound here")
def test_the_sum_is_the_same_from_one_thread_and_from_several(request):
    several = clear(PLAN, THIS, update, entropy=replay)
    safe = secure(PLAN, THIS, update, entropy=replay)
    request.getfixturevalue("one_core")
    alone = clear(PLAN, THIS, update, entropy=replay)
    assert np.array_equal(several.total.values, alone.total.values)
    assert np.array_equal(several.total.values, safe.total.values)


def test_an_update_that_is_overwritten_by_the_next_counts_as_it_was():
    buffer = np.empty(D, dtype=np.float32)

    def reusing(number):
        buffer[:] = 1e-4 * number
        return buffer

    reused = clear(PLAN, THIS, reusing, entropy=replay)
    assert np.array_equal(
        reused.total.values, clear(PLAN, THIS, update, entropy=replay).total.values
    )


def test_a_stream_that_clients_share_is_drawn_from_in_their_order():
    def run():
        stream = replay("everybody")
        return clear(PLAN, THIS, update, entropy=lambda _: stream).total.values

    assert np.array_equal(run(), run())


def test_messages_are_independent_arrays():
    codec = THIS.codec(PLAN)
    first = codec.encode(update(1), entropy=replay("first"))
    kept = first.values.copy()
    second = codec.encode(update(2), entropy=replay("second"))
    assert not np.shares_memory(first.values, second.values)
    assert np.array_equal(first.values, kept)


@needs_cores
def test_updates_are_made_in_order_by_the_caller_and_encoded_by_others():
    makers, fillers = [], set()

    class Watched:
        replayable = True

        def __init__(self, context):
            self._stream = replay(context)

        def fill(self, buffer):
            if buffer.nbytes > 1000:
                fillers.add(who())
            self._stream.fill(buffer)

    def watched(number):
        makers.append((number, who()))
        return update(number)

    clear(PLAN, THIS, watched, entropy=Watched)
    assert makers == [(n, who()) for n in THIS.survivors]
    assert fillers
    assert all(name.startswith("skellam") for name in fillers)


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_results_come_in_the_order_of_the_jobs_with_few_under_way(threads):
    taken = []

    def jobs():
        for n in range(50):
            taken.append(n)
            yield lambda n=n: n

    for n, result in enumerate(workers.run(jobs(), threads=threads)):
        assert result == n
        assert len(taken) <= n + 1 + threads
    assert not any(t.name.startswith("skellam") for t in threading.enumerate())


@pytest.mark.parametrize("threads", [0, 2])
def test_what_a_job_raises_is_raised_and_no_thread_is_left(threads):
    error, ran = OSError("this one"), []

    def fail():
        raise error

    jobs = [fail if n == 3 else lambda n=n: ran.append(n) for n in range(100)]
    with pytest.raises(OSError, match="this one") as caught:
        list(workers.run(jobs, threads=threads))
    assert caught.value is error
    assert len(ran) < 10
    assert not any(t.name.startswith("skellam") for t in threading.enumerate())


@pytest.mark.parametrize("failing", [0, 4])
def test_an_error_of_the_caller_ends_the_threads(failing):
    def stops(number):
        if number == failing:
            raise KeyError(number)
        return update(number)

    with pytest.raises(KeyError, match=str(failing)) as caught:
        clear(PLAN, THIS, stops, entropy=replay)
    assert not any(t.name.startswith("skellam") for t in threading.enumerate())
    assert caught.value.args == (failing,)


def test_an_error_while_encoding_is_raised_and_ends_the_threads():
    class Dry:
        replayable = False

        def fill(self, buffer):
            raise OSError("no more bits")

    def source(context):
        return Dry() if context == "client/6" else replay(context)

    with pytest.raises(OSError, match="no more bits"):
        clear(PLAN, THIS, update, entropy=source)
    assert not any(t.name.startswith("skellam") for t in threading.enumerate())
