"""Sensitivities and errors of banded matrices by jax_privacy, as JSON on standard output.

A program of its own, for an environment that has jax_privacy and not this project; ``--quick``
leaves out what takes minutes. The golden values in ``tests/vectors/jax_privacy_bands.json`` are its
output with jax-privacy 2.0.0::

    python -m venv oracle && oracle/bin/pip install jax-privacy==2.0.0
    oracle/bin/python tests/oracles/jax_privacy_bands.py > tests/vectors/jax_privacy_bands.json
"""

import json
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)

from jax_privacy.matrix_factorization import banded, toeplitz  # noqa: E402

SENSITIVITIES = [
    # band, rounds, participations, separation
    ([1], 50, 4, 13),
    ([2, 1], 50, 4, 13),
    ([2, 1], 9, 9, 1),
    ([3, 2, 1], 10, 4, 2),
    ([3, 2, 1], 4, 4, 1),
    ([4, 3, 2, 2, 1], 20, 7, 3),
    ([5, 2, 2, 1, 1, 1, 0, 0], 17, 5, 4),
    ([8, 4, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 1], 50, 4, 13),
    ([8, 4, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 1], 50, 10, 5),
    ([8, 5, 4, *[3] * 9, *[2] * 22], 1000, 30, 34),
    ([8, 5, 4, *[3] * 9, *[2] * 22], 1000, 100, 10),
    ([4, 2, 2, 2, 2, *[1] * 29], 1000, 44, 7),
]
OPTIMISED = [(50, 2), (50, 4), (50, 13), (100, 25), (500, 8), (1000, 16), (1000, 34), (1000, 100)]
DENSE = [(50, 4), (50, 13), (100, 25)]
"""Matrices of this size are also optimised without asking for equal diagonals."""


def sensitivity(band, rounds, participations, separation):
    coefficients = jnp.array(band[:rounds], dtype=float)
    squared = toeplitz.minsep_sensitivity_squared(
        coefficients, min_sep=separation, max_participations=participations, n=rounds
    )
    return float(jnp.sqrt(squared))


def errors(band, rounds):
    """Return the mean and the last variance of prefix sums, a unit of noise in each round."""
    found = toeplitz.per_query_error(strategy_coef=jnp.array(band[:rounds], dtype=float), n=rounds)
    return [float(found.mean()), float(found[-1])]


def optimised(rounds, bands, *, quick):
    """Return the least mean variance times squared sensitivity, each user in one round."""
    found = toeplitz.optimize_banded_toeplitz(rounds, bands)
    values = {"toeplitz": float(toeplitz.loss(found, n=rounds))}
    if (rounds, bands) in DENSE and not quick:
        matrix = banded.optimize(rounds, bands=bands)
        values["banded"] = float(banded.per_query_error(matrix).mean())
    return values


def main():
    rows = [
        {
            "band": band,
            "rounds": rounds,
            "participations": participations,
            "separation": separation,
            "sensitivity": sensitivity(band, rounds, participations, separation),
            "errors": errors(band, rounds),
        }
        for band, rounds, participations, separation in SENSITIVITIES
    ]
    quick = "--quick" in sys.argv
    cases = OPTIMISED[:3] if quick else OPTIMISED
    best = [{"rounds": n, "bands": w, **optimised(n, w, quick=quick)} for n, w in cases]
    print(json.dumps({"jax-privacy": version("jax-privacy"), "bands": rows, "optimised": best}))


if __name__ == "__main__":
    main()
