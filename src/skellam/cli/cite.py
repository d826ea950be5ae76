"""``skellam cite``: the work that a run rests on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from skellam.cli.answer import AsJson, answer
from skellam.plan import Accountant, Noise, Plan, Sampling, Servers


@dataclass(frozen=True, slots=True)
class Reference:
    """One publication, and what a run takes from it."""

    authors: str
    year: int
    title: str
    published_in: str
    what: str

    def __str__(self) -> str:
        return (
            f"{self.authors} ({self.year}). {self.title}. {self.published_in}.\n  for {self.what}"
        )


SKELLAM = Reference(
    "N. Agarwal, P. Kairouz, Z. Liu",
    2021,
    "The Skellam Mechanism for Differentially Private Federated Learning",
    "NeurIPS 34",
    "the mechanism and the algorithm of a client",
)
DISCRETE_GAUSSIAN = Reference(
    "P. Kairouz, Z. Liu, T. Steinke",
    2021,
    "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation",
    "ICML 38",
    "the distributed discrete Gaussian, and rounding to a bounded norm",
)
GDP = Reference(
    "J. Dong, A. Roth, W. J. Su",
    2022,
    "Gaussian Differential Privacy",
    "Journal of the Royal Statistical Society B 84",
    "the Gaussian curve that every certificate is stated in",
)
LOSSES = Reference(
    "V. Doroshenko, B. Ghazi, P. Kamath, R. Kumar, P. Manurangsi",
    2022,
    "Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions",
    "PoPETs 2022",
    "the composition of sampled rounds",
)
RENYI = Reference(
    "I. Mironov",
    2017,
    "Rényi Differential Privacy",
    "CSF 30",
    "Rényi divergences as an accountant",
)
AMPLIFICATION = Reference(
    "Y. Zhu, Y.-X. Wang",
    2019,
    "Poisson Subsampled Rényi Differential Privacy",
    "ICML 36",
    "the paper's amplification by sampling",
)
SECURE_AGGREGATION = Reference(
    "K. Bonawitz and others",
    2017,
    "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
    "CCS 2017",
    "the protocol that reveals the sum alone",
)
GRAPH = Reference(
    "J. H. Bell, K. A. Bonawitz, A. Gascón, T. Lepoint, M. Raykova",
    2020,
    "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead",
    "CCS 2020",
    "the sparse graph of large cohorts",
)
REMOVAL = Reference(
    "Z. Jiang, W. Wang, R. Chen",
    2024,
    "Dordis: Efficient Federated Learning with Dropout-Resilient Differential Privacy",
    "EuroSys 2024",
    "noise that is added for dropouts and removed again",
)
TWO_SERVERS = Reference(
    "H. Corrigan-Gibbs, D. Boneh",
    2017,
    "Prio: Private, Robust, and Scalable Computation of Aggregate Statistics",
    "NSDI 14",
    "servers that do not collude, and one message from a client",
)
COMPRESSION = Reference(
    "W.-N. Chen, C. A. Choquette-Choo, P. Kairouz, A. T. Suresh",
    2022,
    "The Fundamental Price of Secure Aggregation in Differentially Private Federated Learning",
    "ICML 39",
    "fewer coordinates than parameters",
)
APPLIES: tuple[tuple[Reference, Callable[[Plan], bool]], ...] = (
    (SKELLAM, lambda plan: "skellam" in plan.noise),
    (DISCRETE_GAUSSIAN, lambda plan: plan.noise is Noise.DISCRETE_GAUSSIAN),
    (GDP, lambda plan: plan.accountant is Accountant.BEST),
    (LOSSES, lambda plan: plan.accountant is Accountant.BEST and plan.sampling != Sampling.ALL),
    (RENYI, lambda _: True),
    (AMPLIFICATION, lambda plan: plan.accountant is Accountant.PAPER),
    (SECURE_AGGREGATION, lambda plan: plan.clients_add_noise),
    (GRAPH, lambda plan: plan.clients_add_noise),
    (REMOVAL, lambda plan: plan.clients_add_noise and plan.dropout > 0),
    (TWO_SERVERS, lambda plan: plan.aggregation is Servers.TWO),
    (COMPRESSION, lambda plan: plan.compression is not None),
)
"""Every reference with the plans that it belongs to."""


def cite(
    plan: Annotated[
        Path | None, typer.Argument(help="A plan; without one all references are listed.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the publications to cite for what a plan runs.

    \b
    skellam cite
    skellam cite plan.json
    """
    chosen = None if plan is None else Plan.load(plan)
    found = [reference for reference, applies in APPLIES if chosen is None or applies(chosen)]
    record = {"references": [asdict(reference) for reference in found]}
    answer(record, *(f"{reference}\n" for reference in found), as_json=as_json)
