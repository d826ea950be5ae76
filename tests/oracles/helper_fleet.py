"""A helper's folder, a leader and a few clients with real key files, for tests of the helper."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import replace
from pathlib import Path

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from skellam import SystemEntropy
from skellam.engines.helper import HelperConfig
from skellam.engines.helper.config import write_new
from skellam.engines.key_files import read_identity, read_public, write_identity, write_roster
from skellam.engines.leader import Leader
from skellam.protocol.identity import Identity, Roster
from skellam.twoserver import RunConstants, RunLimits, client
from skellam.twoserver.client import ClientState, Inputs, Party
from skellam.twoserver.leader import LeaderSetting
from skellam.vectors import Residues, residue_dtype

INPUT = bytes(range(32))
ACCEPTED = RunLimits(min_noise_multiplier=0.0, max_participations=1 << 20, min_cohort=1)


def constants(**changes) -> RunConstants:
    given = {
        "run_id": b"r" * 32,
        "variance": 16.0,
        "norm_bound": 1.0,
        "participations": 6,
        "bits": 16,
        "length": 5,
        "rounds": 8,
        "min_cohort": 2,
        "plan": b"p" * 32,
    }
    return RunConstants(**{**given, **changes})


class HelperFleet:
    """Files of all parties below ``folder``; clients keep their states in memory."""

    def __init__(self, folder: Path, clients: int = 4, **limits):
        self.folder = folder
        entropy = SystemEntropy()
        given = {"epsilon": 100.0, "delta": 1e-6, "min_cohort": 2, "participations": 50}
        self.toml, self.helper_public = write_new(
            folder / "helper", entropy=entropy, **{**given, **limits}
        )
        leading = Identity.generate(0, entropy=entropy)
        public = write_identity(folder / "leader.key", leading)
        (folder / "helper" / "leader.key.pub").write_bytes(public.read_bytes())
        self.identities = [Identity.generate(10 + i, entropy=entropy) for i in range(clients)]
        publics = [
            write_identity(folder / f"client-{one.number}.key", one) for one in self.identities
        ]
        write_roster(folder / "helper" / "roster.json", publics)
        self.states = {one.number: ClientState() for one in self.identities}

    def without_tls(self) -> HelperFleet:
        text = self.toml.read_text()
        begin, end = text.index("[tls]"), text.index("[limits]")
        self.toml.write_text(text[:begin] + text[end:])
        return self

    def with_certificate(self) -> Path:
        """Write a certificate for 127.0.0.1 where the TOML file names it; return it."""
        certificate, key = certificate_for_loopback()
        path = self.folder / "helper" / "certificate.pem"
        path.write_bytes(certificate)
        path.with_suffix(".key").write_bytes(key)
        return path

    @property
    def config(self) -> HelperConfig:
        return HelperConfig.load(self.toml)

    @property
    def setting(self) -> LeaderSetting:
        roster = Roster({one.number: one.public for one in self.identities})
        leading = read_identity(self.folder / "leader.key")
        return LeaderSetting(leading, read_public(self.helper_public), roster)

    def lead(self, line, agreed: RunConstants | None = None, name: str = "leader.run") -> Leader:
        return Leader.open(
            self.folder / name,
            constants() if agreed is None else agreed,
            setting=self.setting,
            helper=line,
            entropy=SystemEntropy(),
        )

    def party(self, number: int) -> Party:
        identity = next(one for one in self.identities if one.number == number)
        leading = self.setting.identity.public
        return Party(identity, leading, read_public(self.helper_public), ACCEPTED, 1 << 20)

    def collect(self, members=None):
        """Return a way to collect reports: each client of ``members`` sends its vector."""

        def collected(offer: bytes, start: bytes):
            for number in self.states if members is None else members:
                yield self.report(number, offer, start)

        return collected

    def report(self, number: int, offer: bytes, start: bytes) -> bytes:
        state = self.states[number]
        joined = client.join(
            state,
            offer,
            start,
            party=self.party(number),
            inputs=Inputs(b"p" * 32, INPUT, 0.0),
        )
        new = joined.report(vector(joined.constants, number), entropy=SystemEntropy())
        self.states[number] = new
        return new.message


def vector(agreed: RunConstants, number: int) -> Residues:
    values = np.full(agreed.length, number, dtype=residue_dtype(agreed.bits))
    return Residues(values, agreed.bits)


def truth(agreed: RunConstants, members) -> np.ndarray:
    return np.full(agreed.length, sum(members)) % (1 << agreed.bits)


def with_many_runs(agreed: RunConstants, number: int) -> RunConstants:
    return replace(agreed, run_id=number.to_bytes(32, "big"))


def certificate_for_loopback() -> tuple[bytes, bytes]:
    """Return a certificate that signs itself, for 127.0.0.1, and its key, both as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM), secret
