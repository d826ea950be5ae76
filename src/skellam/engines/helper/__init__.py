"""The helper of two servers as a program of its own, and the leader's line to it.

Its operator installs it (extra ``helper``); nothing of the leader's runs in it. It needs neither
torch nor Flower.
"""

from __future__ import annotations

from skellam.engines.helper.config import HelperConfig, HelperLimits
from skellam.engines.helper.service import HelperService

__all__ = ["HelperConfig", "HelperLimits", "HelperService"]


def __dir__() -> list[str]:
    return sorted(__all__)
