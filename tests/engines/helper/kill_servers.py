"""Kill a helper and a leader at random moments, start them again each time, and keep what they say.

Run as a process of its own: it forks the servers. ``kill_servers.py FOLDER KILLS RELEASES BAND``
kills each of the two KILLS times at least, and goes on until RELEASES rounds were released between
the kills; then it lets the leader finish its round. Clients keep their states in files, since they
live in the leader's process and die with it. FOLDER/answers has every answer of the helper that
reached the leader, FOLDER/released what the leader estimated.
"""

import os
import random
import signal
import sys
import time
from multiprocessing.connection import Client, Listener
from pathlib import Path

from oracles.helper_fleet import INPUT, HelperFleet, constants
from skellam import SystemEntropy
from skellam.engines import durable
from skellam.engines.helper import HelperService
from skellam.errors import ProtocolError
from skellam.twoserver.client import ClientState
from skellam.twoserver.messages import Answer, RoundStart

ROUNDS = 5000


def agreed(band):
    return constants(
        rounds=ROUNDS, participations=ROUNDS, variance=1e6, bits=32, length=16, band=band
    )


AGREED = agreed(tuple(map(int, sys.argv[4].split(",")))) if __name__ == "__main__" else agreed((1,))


class DurableFleet(HelperFleet):
    """Clients with files: a state is durable before its message is sent, and sent again."""

    def path(self, number):
        return self.folder / f"client-{number}.state"

    def report(self, number, offer, start):
        path = self.path(number)
        self.states[number] = (
            ClientState.from_bytes(path.read_bytes()) if path.exists() else (ClientState())
        )
        record = self.states[number].run(AGREED.run_id)
        if record is not None and RoundStart.decode(start).round_ in record.rounds:
            return self.states[number].message
        message = super().report(number, offer, start)
        durable.replace(path, self.states[number].to_bytes(), mode=durable.SECRET)
        return message


def append(path, line):
    with path.open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def help_(fleet, address):
    address.unlink(missing_ok=True)
    with (
        HelperService(fleet.config, entropy=SystemEntropy()) as service,
        Listener(str(address), family="AF_UNIX") as listener,
    ):
        while True:
            with listener.accept() as line:
                try:
                    line.send((True, service.handle(line.recv())))
                except ProtocolError as error:
                    line.send((False, f"{type(error).__name__}: {error}"))
                except (EOFError, OSError):  # the leader died meanwhile
                    continue


def lead(fleet, address, until):
    def ask(message):
        while True:
            try:
                with Client(str(address), family="AF_UNIX") as line:
                    line.send(message)
                    right, reply = line.recv()
                    break
            except (EOFError, OSError):
                time.sleep(0.001)
        if not right:
            append(fleet.folder / "refused", reply)
            raise ProtocolError(reply)
        if reply[1] == Answer.TAG:
            append(fleet.folder / "answers", f"{Answer.decode(reply).round_} {reply.hex()}")
        return reply

    leader = fleet.lead(ask, AGREED)
    keep(fleet, leader.release)
    while leader.next_round < until:
        keep(fleet, leader.round(leader.next_round, INPUT, fleet.collect()))


def keep(fleet, release):
    if release is not None:
        append(
            fleet.folder / "released", f"{release.round_} {release.estimate.values.tobytes().hex()}"
        )


def forked(work, *given):
    child = os.fork()
    if child == 0:
        signal.alarm(900)  # whatever becomes of who forked it
        try:
            work(*given)
            os._exit(0)
        except BaseException as error:  # noqa: BLE001
            print(f"{work.__name__}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    return child


def fleet_in(folder):
    return DurableFleet(folder, clients=3, epsilon=1e6, participations=ROUNDS)


def warmed(folder):
    """Return the seconds from a start to the end of a round, all modules being imported before."""
    folder.mkdir()
    fleet = fleet_in(folder)
    for until in (1, 2):
        start = time.perf_counter()
        with HelperService(fleet.config, entropy=SystemEntropy()) as service:
            leader = fleet.lead(service.handle, AGREED)
            leader.round(until, INPUT, fleet.collect())
    return time.perf_counter() - start


def kill(work, alive, kills, folder, releases, pause):
    """Kill both ``kills`` times at least, until enough is released; return how often each was."""
    dice, killed, seen = random.Random(7), dict.fromkeys(work, 0), 0
    while min(killed.values()) < kills or seen < releases:
        if sum(killed.values()) % 10 == 9:
            before, seen = seen, len(released(folder))
            pause *= 1 if seen > before else 1.5  # the machine has become slower than it was
        time.sleep(dice.expovariate(1 / pause))
        name = dice.choice(list(work))
        if not end(alive[name]):
            sys.exit(f"the {name} ended by itself")
        killed[name] += 1
        alive[name] = forked(*work[name])
    return killed


def released(folder):
    """Return the rounds that were released."""
    path = folder / "released"
    lines = path.read_text().splitlines() if path.exists() else []
    return {int(line.split()[0]) for line in lines}


def end(child):
    """Kill a process; return whether it ran until then."""
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main():
    folder, kills, releases = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    pause = 0.7 * warmed(folder / "warm")
    fleet, address = fleet_in(folder), folder / "line"
    work = {"helper": (help_, fleet, address), "leader": (lead, fleet, address, ROUNDS)}
    alive = {name: forked(*job) for name, job in work.items()}
    try:
        killed = kill(work, alive, kills, folder, releases, pause)
        end(alive.pop("leader"))
        last = max(released(folder)) + 3
        _, status = os.waitpid(forked(lead, fleet, address, last), 0)
    finally:
        for child in alive.values():
            end(child)
    print(status, *killed.values())


if __name__ == "__main__":
    main()
