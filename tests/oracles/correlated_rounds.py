"""Exact laws of all rounds of a run with a band, for users and adversaries that adapt.

An output of a run is one integer for each round and coordinate, an axis each. The law with the
user and the law without are arrays over all of them: sums over every outcome in a window.
"""

import itertools
import math

import numpy as np

from oracles import exact_profile


def pair(variance, band, rounds, strategy, *, dims=1, reach):
    """Return the laws of all opened sums with the user and without.

    ``strategy(t, seen)`` is the user's vector of round ``t``: a list with one real for each
    coordinate, or None in rounds without it. ``seen`` has the outputs of earlier rounds, in a form
    that broadcasts: what it returns may depend on them, so that whoever chooses the vectors adapts.
    Fractions are rounded at random, by coins that are averaged out here. Other clients, who may
    depend on the outputs too, are known shifts and leave the divergence as it is.
    """
    axes = rounds * dims
    window = np.arange(-reach, reach + 1)
    outputs = [[_along(window, t * dims + i, axes) for i in range(dims)] for t in range(rounds)]
    vectors = [strategy(t, outputs[:t]) for t in range(rounds)]
    flat = [(t, i, x) for t, v in enumerate(vectors) if v is not None for i, x in enumerate(v)]
    random = [(t, i) for t, i, x in flat if np.any(np.asarray(x) % 1)]
    wide = _masses(variance, band, vectors, reach)
    released = 0.0
    for coins in itertools.product((0, 1), repeat=len(random)):
        up = dict(zip(random, coins, strict=True))
        weight, integers = 1.0, {}
        for t, i, x in flat:
            floor, fraction = np.floor(x), np.asarray(x) % 1
            if (t, i) in up:
                weight = weight * (fraction if up[t, i] else 1 - fraction)
            integers[t, i] = floor.astype(int) + up.get((t, i), 0)
        released = released + weight * _law(wide, band, outputs, integers, dims)
    return np.ravel(released), np.ravel(_law(wide, band, outputs, {}, dims))


def _along(values, axis, axes):
    return values.reshape([-1 if a == axis else 1 for a in range(axes)])


def _masses(variance, band, vectors, reach):
    values = [np.abs(x).max() for v in vectors if v is not None for x in v]
    margin = len(band) * band[0] * math.ceil(max(values, default=0) + 1)
    return exact_profile.skellam_masses(variance, reach + margin)


def _law(wide, band, outputs, integers, dims):
    """Return the law of the outputs given the user's integers, which may depend on them."""
    law, centre = 1.0, len(wide) // 2
    for t, row in enumerate(outputs):
        for i in range(dims):
            shift = sum(c * integers.get((t - j, i), 0) for j, c in enumerate(band))
            law = law * wide[row[i] - shift + centre]
    return law


def max_squared_norm(band, rounds, participations, separation):
    """Return the largest squared norm over ALL patterns of participation, by looking at each."""
    best = 0
    for count in range(1, participations + 1):
        for pattern in itertools.combinations(range(rounds), count):
            if all(b - a >= separation for a, b in itertools.pairwise(pattern)):
                shift = np.zeros(rounds + len(band), dtype=int)
                for t in pattern:
                    shift[t : t + len(band)] += band
                best = max(best, int((shift[:rounds] ** 2).sum()))
    return best
