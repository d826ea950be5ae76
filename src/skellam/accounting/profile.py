"""The exact privacy profile of one coordinate of Skellam noise: delta as a function of epsilon."""

from __future__ import annotations

import math

import numpy as np

from skellam import _checks
from skellam.accounting.laws import skellam_law

_SAFETY = 1 + 4e-10


def delta_exact(variance: float, shift: int, epsilon: float) -> float:
    """Return the hockey-stick divergence of Sk(variance) shifted by ``shift``, rounded up.

    The likelihood ratio rises, so the sum runs over the outcomes from some threshold on, and all
    its terms are positive; what lies beyond the table has mass below e^-740.
    """
    k = _checks.integer("shift", abs(shift), 1)
    e = _checks.non_negative("epsilon", epsilon)
    right = skellam_law(_checks.positive("variance", variance)).log_pmf
    if not k < right.size:
        return 1.0
    whole = np.concatenate((right[:0:-1], right))
    shifted, plain = whole[:-k], whole[k:]
    terms = np.exp(shifted) * -np.expm1(np.minimum(e + plain - shifted, 0.0))
    beyond = math.fsum(np.exp(whole[-k:]))
    return min(1.0, (float(terms.sum()) + beyond) * _SAFETY)
