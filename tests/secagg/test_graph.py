from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.rounds import exactly
from skellam.cohorts import Tolerance
from skellam.errors import InfeasibleError
from skellam.secagg.graph import SMALL, Topology, ascending, exceeded, graph, sparsest, topology

CASES = [(200, 10, 2), (1000, 50, 10), (1000, 100, 50), (10_000, 500, 100), (10_000, 3000, 1000)]


def tail(population, marked, draws, least):
    """P(X >= least) for the hypergeometric law, from its definition."""
    ways = sum(
        comb(marked, i) * comb(population - marked, draws - i) for i in range(least, draws + 1)
    )
    return Fraction(ways, comb(population, draws))


@given(
    population=st.integers(1, 60),
    data=st.data(),
    times=st.integers(1, 100),
    bits=st.integers(1, 60),
)
def test_the_tail_is_exact(population, data, times, bits):
    marked = data.draw(st.integers(0, population))
    draws = data.draw(st.integers(0, population))
    m = exceeded(population, marked, draws, times=times, bits=bits)
    assert times * tail(population, marked, draws, m) <= Fraction(1, 2**bits)
    assert times * tail(population, marked, draws, m - 1) > Fraction(1, 2**bits)


@pytest.mark.parametrize(("n", "dropouts", "colluders"), CASES)
def test_the_three_conditions_of_bell_et_al_hold(n, dropouts, colluders):
    shape = sparsest(n, dropouts=dropouts, colluders=colluders)
    assert 2 * shape.degree < n
    assert 2 * shape.run <= shape.degree
    secure, correct = Fraction(1, 2**81), Fraction(1, 2**40)
    colluding = tail(n - 1, colluders, shape.degree, shape.threshold - shape.run)
    together = tail(n, colluders, shape.run, shape.window)
    assert n * (colluding + together) <= secure
    dropped = tail(n - 1, dropouts, shape.degree, shape.degree - shape.threshold + 1)
    sparse = tail(n, dropouts, shape.run, shape.run - shape.window + 1)
    assert n * (dropped + sparse) <= correct


@pytest.mark.parametrize(("n", "dropouts", "colluders"), CASES)
def test_a_sample_finds_agreement_that_no_majority_of_the_honest_signed(n, dropouts, colluders):
    shape = sparsest(n, dropouts=dropouts, colluders=colluders)
    unseen = Fraction(n + colluders, 2 * (n - dropouts)) ** shape.sample
    assert n * unseen <= Fraction(1, 2**41)
    assert shape.sample < 160


@pytest.mark.parametrize("n", [2, 3, 10, 100, SMALL])
def test_small_cohorts_are_complete_and_two_quorums_share_an_honest_client(n):
    dropouts = (n - 2) // 2
    shape = sparsest(n, dropouts=dropouts, colluders=0)
    assert shape.complete
    assert shape.threshold == shape.survivors == n - dropouts
    assert 2 * shape.threshold > n


@pytest.mark.parametrize(("n", "dropouts", "colluders"), [(10, 5, 0), (10, 3, 4), (3, 1, 1)])
def test_a_tolerance_that_would_let_the_server_have_both_secrets_is_refused(n, dropouts, colluders):
    with pytest.raises(InfeasibleError, match="cannot bear"):
        topology(n, exactly(n, dropouts=dropouts, colluders=colluders))


@pytest.mark.parametrize("n", [5, 20, 107, 150, 1000])
def test_the_graph_follows_from_the_same_numbers_as_the_noise(n):
    tolerance = Tolerance(Fraction(7, 100), Fraction(1, 100), population=100_000, tail_bits=20)
    dropouts, colluders = tolerance.dropouts(n), tolerance.colluders(n)
    if not tolerance.feasible(n):
        with pytest.raises(InfeasibleError):
            topology(n, tolerance)
        return
    shape = topology(n, tolerance)
    assert shape == sparsest(n, dropouts=dropouts, colluders=colluders)
    assert shape.survivors == tolerance.survivors(n)


@pytest.mark.parametrize(
    ("colluding", "degrees", "samples"),
    [(20, [116, 128, 144, 154], [60, 61, 64, 67]), (100, [58, 82, 96, 102], [56, 58, 60, 63])],
)
def test_degree_and_sample_by_size(colluding, degrees, samples):
    sizes = (1000, 2000, 10_000, 65_535)
    shapes = [sparsest(n, dropouts=n // 20, colluders=n // colluding) for n in sizes]
    assert [shape.degree for shape in shapes] == degrees
    assert [shape.sample for shape in shapes] == samples


@pytest.mark.parametrize(
    ("colluding", "colluders", "degrees", "samples"),
    [
        ("1/20", [105, 176, 661, 3677], [160, 164, 160, 160], [66, 65, 66, 68]),
        ("1/100", [39, 58, 178, 843], [106, 108, 106, 108], [59, 59, 61, 63]),
    ],
)
def test_degree_and_sample_for_a_share_of_the_population(colluding, colluders, degrees, samples):
    """The table of docs/maths/ring.md."""
    tolerance = Tolerance(Fraction(1, 20), Fraction(colluding))
    sizes = (1000, 2000, 10_000, 65_535)
    shapes = [topology(n, tolerance) for n in sizes]
    assert [tolerance.colluders(n) for n in sizes] == colluders
    assert [shape.degree for shape in shapes] == degrees
    assert [shape.sample for shape in shapes] == samples


@pytest.mark.parametrize(("colluding", "start"), [(20, 1000), (50, 1000), (100, 2000)])
def test_degree_and_sample_grow_no_faster_than_the_logarithm(colluding, start):
    """From where the colluders are about twenty: fewer keep the degree small by their number."""
    sizes = (start, 10_000, 65_535)
    shapes = [sparsest(n, dropouts=n // 20, colluders=n // colluding) for n in sizes]
    for numbers in ([s.degree for s in shapes], [s.sample for s in shapes]):
        over_log = np.array(numbers) / np.log2(sizes)
        assert (np.diff(over_log) < 0).all()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_keys_whose_high_words_tie_are_ordered_by_their_low_words(pairs):
    keys = np.array(pairs, dtype="<u8").T
    assert ascending(keys).tolist() == np.lexsort(keys).tolist()


def test_the_graph_is_regular_and_symmetric():
    shape = sparsest(300, dropouts=15, colluders=3)
    ring = graph(shape, bytes(32))
    near = [set(ring.neighbours(i).tolist()) for i in range(300)]
    assert all(len(others) == shape.degree and i not in others for i, others in enumerate(near))
    assert all(i in near[j] for i, others in enumerate(near) for j in others)


def test_other_participants_give_another_ring():
    shape = sparsest(300, dropouts=15, colluders=3)
    one, other = graph(shape, bytes(32)), graph(shape, b"1" * 32)
    assert one.order.tolist() != other.order.tolist()
    assert sorted(one.order.tolist()) == list(range(300))


def test_every_place_of_the_ring_is_as_likely():
    """Client 0 sits in each half of 2000 rings; a false alarm (5.3 sigma) comes once in 1e7."""
    shape = Topology(300, 285, 30, 20, 15, 4, 55)
    front = sum(int(graph(shape, i.to_bytes(32, "big")).positions[0]) < 150 for i in range(2000))
    assert abs(front - 1000) < 5.4 * np.sqrt(500)


def test_a_server_that_declares_an_arc_dead_to_split_the_ring_is_refused():
    shape = sparsest(300, dropouts=40, colluders=2)
    ring = graph(shape, bytes(32))
    alive = np.ones(300, dtype=bool)
    assert ring.holds_together(alive)
    alive[ring.order[: shape.run]] = False
    assert int(alive.sum()) >= shape.survivors
    assert not ring.holds_together(alive)


@pytest.mark.parametrize("shift", [0, 140, 290])
def test_a_window_counts_around_the_end_of_the_ring(shift):
    shape = sparsest(300, dropouts=40, colluders=2)
    ring = graph(shape, bytes(32))
    run = ring.order[np.arange(shift, shift + shape.run) % 300]
    alive = np.ones(300, dtype=bool)
    alive[run[: shape.run - shape.window]] = False
    assert ring.holds_together(alive)
    alive[run[shape.run - shape.window]] = False
    assert not ring.holds_together(alive)


def test_survivors_that_hold_together_are_connected_without_any_tolerated_colluders():
    """Take away every set that the client accepts plus colluders in one window: one component."""
    shape = sparsest(300, dropouts=40, colluders=2)
    ring = graph(shape, bytes(32))
    gone = shape.run - shape.window
    alive = np.ones(300, dtype=bool)
    alive[ring.order[:gone]] = False
    alive[ring.order[150 : 150 + gone]] = False
    assert ring.holds_together(alive)
    honest = alive.copy()
    honest[ring.order[gone : gone + 2]] = False
    reached, edge = set(), [int(np.flatnonzero(honest)[0])]
    while edge:
        i = edge.pop()
        if i not in reached:
            reached.add(i)
            edge += [j for j in ring.neighbours(i).tolist() if honest[j]]
    assert len(reached) == int(honest.sum())
