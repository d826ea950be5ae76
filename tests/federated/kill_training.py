"""Kill one training run at random moments, resume it each time, and print what became of it.

Run as a process of its own: it forks the trainers. ``kill_training.py FOLDER KILLS ENTROPY NOISE``
trains in FOLDER/killed with KILLS kills and, where ENTROPY is "seeded", also in FOLDER/whole with
none. NOISE is "independent", with a clip that adapts, or "correlated" by two servers.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

import skellam as sk
from oracles.tiny_task import plan, seeded, task
from skellam import federated as fl

torch.set_num_threads(1)  # a forked process that needs more of them waits for ever
SCHEDULE = fl.torch_schedule(
    lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.7, patience=0),
    metric="validation_loss",
)
PLAN = plan(rounds=40, cohort=10, quantile_noise=0.1, expected_dropout=0.1)
BAND = plan(
    rounds=40,
    cohort=4,
    dropout=0.0,
    sampling="cyclic",
    aggregation="two-servers",
    correlation=(2, 1, 1),
    server_momentum=0.9,
).request.with_noise(8.0, delta=1e-3)


def run(folder: Path, entropy: str, watch=None) -> fl.History:
    correlated = sys.argv[4] == "correlated"
    return fl.train(
        task(schedule=SCHEDULE),
        BAND if correlated else PLAN,
        aggregate=fl.two_servers(dropout=0.1) if correlated else fl.unmasked(dropout=0.1),
        clip=None if correlated else fl.AdaptiveClip(clip=0.1),
        entropy=seeded() if entropy == "seeded" else sk.SystemEntropy(),
        folder=folder,
        resume=True,
        every=8,
        watch=watch,
    )


def kill_one(folder: Path, entropy: str, rounds: int, delay: float) -> bool:
    """Kill a trainer ``delay`` seconds after it showed ``rounds``; return whether it still ran.

    It writes the round of every record that it showed into a file of its own.
    """
    shown = os.open(folder.parent / "shown", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    read_end, write_end = os.pipe()

    def watch(record: fl.Record) -> None:
        os.write(shown, b"%d\n" % record.round)
        os.write(write_end, b"x")

    trainer = os.fork()
    if trainer == 0:
        try:
            run(folder, entropy, watch)
        finally:
            os._exit(0)
    os.close(write_end)
    for _ in range(rounds):
        os.read(read_end, 1)
    time.sleep(delay)
    os.kill(trainer, signal.SIGKILL)
    _, status = os.waitpid(trainer, 0)
    for descriptor in (read_end, shown):
        os.close(descriptor)
    return os.WIFSIGNALED(status)


def main() -> None:
    folder, kills, entropy = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    run(folder / "warm", entropy)  # imports and builds in advance what a trainer needs
    start = time.perf_counter()
    if entropy == "seeded":
        run(folder / "whole", entropy)
    else:
        run(folder / "warm again", entropy)
    one = (time.perf_counter() - start) / PLAN.rounds
    dice = random.Random(7)
    done = sum(
        kill_one(folder / "killed", entropy, dice.randrange(7), dice.uniform(0, 2 * one))
        for _ in range(kills)
    )
    run(folder / "killed", entropy)
    print(done)


if __name__ == "__main__":
    main()
