"""Does every plan and every accounting call answer or refuse within ten seconds and 2 GB?

``python -m benchmarks limits`` draws 2,000 plans and 2,000 accounting calls from far beyond what is
sensible (clips from 1e-300 to 1e300, up to 1e12 rounds, deltas from 1e-300 to 1 - 1e-9) and runs
each in a process of its own. A plan must hold its target and its codec must encode, for the
smallest cohort too; a bound must be a number that is not negative; anything else must be an error
of `skellam.errors`. The command fails otherwise.
"""

from __future__ import annotations

import math
import os
import pickle
import random
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.timing import Report

import skellam as sk
from skellam import accounting as acc
from skellam.codec.arithmetic import sampler_of
from skellam.errors import SkellamError

CASES = 2_000
MAX_SECONDS, MAX_BYTES = 10.0, 2 * 10**9
_LONG = 1 << 20
"""Coordinates beyond which the noise alone is drawn, and no vector is encoded."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case: "answered", the name of an error of ours, or what went wrong."""

    case: str
    result: str
    seconds: float
    octets: int

    @property
    def failure(self) -> str | None:
        """Return what is wrong with it, if anything."""
        if self.result.startswith("!"):
            return f"{self.case}: {self.result[1:]}"
        if self.seconds > MAX_SECONDS or self.octets > MAX_BYTES:
            return f"{self.case}: {self.seconds:.1f} s, {self.octets / 1e9:.2f} GB, {self.result}"
        return None


def main() -> None:
    show(CASES)


def sample() -> None:
    """Run forty of each."""
    show(40)


def show(cases: int) -> None:
    """Print what became of so many cases of each kind, and exit with an error if one failed."""
    report = Report("Random calls", "what", "cases", "answered", "refused", "most s", "most GB")
    failures: list[str] = []
    for name, draw, run in (
        ("plans", random_plan, try_plan),
        ("accounting calls", random_call, try_call),
    ):
        found = measure(draw, run, cases=cases, seed=1, threads=os.cpu_count() or 1)
        failures += [each.failure for each in found if each.failure]
        counts = Counter(each.result for each in found)
        report.row(
            name,
            f"{len(found):,}",
            f"{counts['answered']:,}",
            f"{len(found) - counts['answered']:,}",
            f"{max(each.seconds for each in found):.2f}",
            f"{max(each.octets for each in found) / 1e9:.2f}",
            ratio=max(each.seconds for each in found) / MAX_SECONDS,
            ceiling=1,
        )
    report.print()
    if failures:
        sys.exit("\n".join(failures))


def measure(
    draw: Callable[[random.Random], dict],
    run: Callable[[dict], str],
    *,
    cases: int,
    seed: int,
    threads: int = 1,
) -> list[Outcome]:
    """Run so many cases of ``draw``, each in a child process with its limits."""
    drawn = random.Random(seed)
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda case: limited(case, run), [draw(drawn) for _ in range(cases)]))


def limited(case: dict, run: Callable[[dict], str]) -> Outcome:
    """Run one case in a forked child, which its limits end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _within_limits()
            os.write(writing, pickle.dumps(run(case)))
        except SkellamError as error:
            os.write(writing, pickle.dumps(type(error).__name__))
        except BaseException as error:  # noqa: BLE001
            os.write(writing, pickle.dumps(f"!{error!r}"[:500]))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status, used = os.wait4(child, 0)
    result = pickle.loads(answer) if answer else f"!ended by a limit, status {status}"
    return Outcome(repr(case), result, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def _within_limits() -> None:
    """Limit seconds of CPU and memory, and let Ctrl-C end the child."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    seconds = math.ceil(MAX_SECONDS) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + MAX_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _between(drawn: random.Random, low: float, high: float) -> float:
    """Return 10 to a uniform power; one in ten is an end."""
    if drawn.random() < 0.1:
        return 10.0 ** drawn.choice([low, high])
    return 10.0 ** drawn.uniform(low, high)


def _delta(drawn: random.Random, sensible: bool) -> float:
    if sensible:
        return _between(drawn, -12, -2)
    return 1 - _between(drawn, -9, -1) if drawn.random() < 0.2 else _between(drawn, -300, -0.01)


def random_plan(drawn: random.Random) -> dict:
    """Return the arguments of a plan and its target; every second plan is about sensible."""
    sensible = drawn.random() < 0.5
    cohort = int(_between(drawn, 0, 6))
    sampling = drawn.choice(["poisson", "poisson", "fixed", "cyclic", "all"])
    return {
        "dimension": int(_between(drawn, 0, 9)),
        "clip": _between(drawn, *((-3, 3) if sensible else (-300, 300))),
        "bits": drawn.randint(*((8, 32) if sensible else (1, 64))),
        "cohort": cohort,
        "population": None
        if sampling == "all"
        else max(cohort, int(cohort * _between(drawn, 0, 5))),
        "rounds": int(_between(drawn, 0, 5 if sensible else 12)),
        "sampling": sampling,
        "noise": drawn.choice(["skellam"] * 4 + ["distributed-discrete-gaussian", "gaussian"]),
        "dropout": drawn.choice([0.0, 0.0, 0.1, 0.3]),
        "colluding": drawn.choice([0.0, 0.0, 0.0, 0.05]),
        "epsilon": _between(drawn, *((-1, 2) if sensible else (-6, 6))),
        "delta": _delta(drawn, sensible),
    }


def try_plan(case: dict) -> str:
    """Return "answered" for a plan that holds its target and whose codec encodes."""
    asked = {name: case[name] for name in case if name not in ("epsilon", "delta")}
    plan = sk.Plan(**asked).calibrated(epsilon=case["epsilon"], delta=case["delta"])
    if not plan.privacy().epsilon <= case["epsilon"]:
        return f"!the target is exceeded: {plan.privacy().epsilon}"
    if plan.noise.continuous:
        return "answered"
    for cohort in {plan.min_cohort, max(plan.min_cohort, plan.invited)}:
        if not _encodes(plan, cohort):
            return f"!the message of a cohort of {cohort} has another length"
    return "answered"


def _encodes(plan: sk.CalibratedPlan, cohort: int) -> bool:
    entropy = sk.SystemEntropy()
    if plan.sent_dim > _LONG or plan.dimension > _LONG:
        sampler = sampler_of(plan.spec(cohort=cohort).noise)
        return sampler is None or len(sampler.draw(100, entropy=entropy)) == 100
    codec = plan.codec(public_seed=bytes(32), cohort=cohort)
    seed = codec.new_noise_seed(entropy=entropy) if codec.spec.removable else None
    x = np.full(plan.dimension, min(plan.clip, 1e30), dtype=np.float32)
    message = codec.encode(x, entropy=entropy, noise_seed=seed)
    return len(message) == codec.spec.message_len


def random_call(drawn: random.Random) -> dict:
    """Return the arguments of one accounting call."""
    sensible = drawn.random() < 0.5
    kind = drawn.choice(
        ["gaussian", "skellam", "rounded", "discrete", "shares", "laplace", "multiplier"]
    )
    return {
        "kind": kind,
        "sigma": _between(drawn, *((-1, 4) if sensible else (-300, 300))),
        "l2": _between(drawn, *((0, 2) if sensible else (-300, 300))),
        "dimension": int(_between(drawn, 0, 9)),
        "cohorts": drawn.choice(["all", "poisson", "known", "fixed"]),
        "rate": _between(drawn, -9 if not sensible else -4, 0),
        "rounds": int(_between(drawn, 0, 5 if sensible else 12)),
        "method": drawn.choice(["best"] * 3 + ["gdp", "rdp", "pld", "paper"]),
        "epsilon": None if drawn.random() < 0.7 else _between(drawn, -6, 6),
        "delta": _delta(drawn, sensible),
    }


def try_call(case: dict) -> str:
    """Return "answered" for a bound that is a number of its range."""
    at = {"rounds": case["rounds"], "method": case["method"]}
    if case["kind"] == "multiplier":
        epsilon = case["epsilon"] or 1.0
        bound = acc.noise_multiplier(
            epsilon=epsilon, delta=case["delta"], rate=min(case["rate"], 1.0), **at
        )
    elif case["epsilon"] is None:
        bound = acc.epsilon(_mechanism(case), delta=case["delta"], **at)
    else:
        bound = acc.delta(_mechanism(case), epsilon=case["epsilon"], **at)
    return "answered" if bound >= 0 else f"!{bound}"


def _mechanism(case: dict) -> acc.Mechanism:
    sigma, l2, dimension = case["sigma"], case["l2"], case["dimension"]
    variance = sigma**2 if sigma < 1e150 else math.inf
    noise: acc.NoiseMechanism
    match case["kind"]:
        case "gaussian":
            noise = acc.Gaussian(sigma, l2)
        case "skellam":
            noise = acc.Skellam(variance, l2, dimension=dimension)
        case "rounded":
            noise = acc.RoundedSkellam(variance, l2, dimension=dimension, tail=1e-12)
        case "discrete":
            noise = acc.DiscreteGaussian(sigma, l2, dimension=dimension)
        case "shares":
            noise = acc.DistributedDiscreteGaussian(sigma, 10, l2, dimension=dimension)
        case _:
            noise = acc.Laplace(sigma, l2, dimension)
    rate = min(case["rate"], 1.0)
    population = max(1, round(1 / rate))
    match case["cohorts"]:
        case "poisson":
            return acc.Sampled(noise, rate)
        case "known":
            return acc.SampledKnownSize(noise, rate, population)
        case "fixed":
            return acc.SampledWithoutReplacement(noise, 1, population)
        case _:
            return noise


if __name__ == "__main__":
    main()
