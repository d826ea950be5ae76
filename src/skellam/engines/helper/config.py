"""The helper's configuration: a TOML file of its operator, which no leader can change."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skellam import _checks
from skellam.engines import durable
from skellam.engines.key_files import (
    read_config,
    read_identity,
    read_public,
    read_roster,
    write_identity,
)
from skellam.entropy import Entropy
from skellam.errors import DataError, DomainError
from skellam.protocol.identity import Identity
from skellam.twoserver import RunLimits
from skellam.twoserver.helper import HelperSetting

if TYPE_CHECKING:
    from skellam.accounting.ledger import Budget

CONFIG: Final = "helper.toml"
_FILES: Final = ("identity", "leader", "roster", "state")
_TLS: Final = ("certificate", "key")
_TEMPLATE: Final = """\
# The helper of two servers; paths are relative to this file.
identity = "helper.key"      # secret; give helper.key.pub to the leader and to every client
leader = "leader.key.pub"    # the leader's public key, from the leader's operator
roster = "roster.json"       # all clients' public keys, from the clients and not from the leader
state = "state"              # runs, ledger and chain; never restore it from an old copy

[tls]                        # leave it out to serve plain HTTP on this machine alone
certificate = "certificate.pem"
key = "certificate.key"

[limits]
total_epsilon = {epsilon}          # what any one client may lose against the leader, over all runs
delta = {delta}
min_cohort = {min_cohort}              # fewest clients in a sum
max_participations = {participations}       # rounds of one client in a run
min_separation = 1           # rounds between two of one client
helper_noise_alone = false   # true: runs in which only this helper adds noise are accepted
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperLimits:
    """What the helper's operator allows, whatever a leader proposes.

    ``total_epsilon`` at ``delta`` bounds what any one client loses against the leader over all
    runs; a run counts as often as its busiest client took part.
    """

    total_epsilon: float
    delta: float
    min_cohort: int
    max_participations: int
    min_separation: int = 1
    helper_noise_alone: bool = False
    min_noise_multiplier: float = 0.0
    max_length: int = 1 << 26
    max_rounds: int = 1 << 16
    max_band: int = 1 << 10

    def __post_init__(self) -> None:
        _checks.positive("total_epsilon", self.total_epsilon)
        _checks.open_unit("delta", self.delta)
        _checks.integer("min_cohort", self.min_cohort, 2)
        if not isinstance(self.helper_noise_alone, bool):
            raise DomainError(f"helper_noise_alone must be true or false, got {self!r}")
        _ = self.run  # which checks the others

    @property
    def run(self) -> RunLimits:
        """What is demanded of the constants of a run."""
        names = {f.name for f in fields(RunLimits)}
        return RunLimits(**{n: getattr(self, n) for n in names})

    @property
    def budget(self) -> Budget:
        """The budget over all runs; it has a filter, for leaders choose runs as they like."""
        from skellam.accounting.ledger import Budget, GdpFilter

        return Budget(self.total_epsilon, self.delta, GdpFilter())


@dataclass(frozen=True, slots=True)
class HelperConfig:
    """All that a helper is started with."""

    setting: HelperSetting
    limits: HelperLimits
    state: Path
    tls: tuple[Path, Path] | None = None
    """Certificate and its key."""

    @classmethod
    def load(cls, path: str | Path) -> HelperConfig:
        """Read a TOML file; the paths in it are relative to its folder."""
        file = Path(path)
        if file.is_dir():
            file /= CONFIG
        limits, record = read_config(file, HelperLimits)
        tls = record.pop("tls", None)
        if set(record) != set(_FILES) or (tls is not None and set(tls) != set(_TLS)):
            raise DataError(
                f"{file} must name {', '.join(_FILES)}, and in a table [tls] {' and '.join(_TLS)}"
            )
        identity, leader, roster, state = (file.parent / str(record[name]) for name in _FILES)
        setting = HelperSetting(
            read_identity(identity), read_public(leader), read_roster(roster), limits.run
        )
        if setting.identity.public == setting.leader:
            raise DomainError("leader and helper have the same key; they must not be one party")
        if tls is None:
            return cls(setting, limits, state)
        certificate, key = (file.parent / str(tls[name]) for name in _TLS)
        return cls(setting, limits, state, (certificate, key))


def write_new(
    folder: Path,
    *,
    entropy: Entropy,
    epsilon: float,
    delta: float,
    min_cohort: int,
    participations: int,
) -> tuple[Path, Path]:
    """Make a helper's folder: its key and a TOML file to fill in; return that and the public key.

    What is in the folder already is never overwritten.
    """
    text = _TEMPLATE.format(
        epsilon=epsilon, delta=delta, min_cohort=min_cohort, participations=participations
    )
    HelperLimits(**tomllib.loads(text)["limits"])
    durable.make_folder(folder, mode=durable.SECRET_FOLDER)
    file = folder / CONFIG
    if file.exists():
        raise DataError(f"{file} exists; a helper is made once")
    public = write_identity(folder / "helper.key", Identity.generate(0, entropy=entropy))
    durable.replace(file, text.encode(), mode=durable.SECRET)
    return file, public
