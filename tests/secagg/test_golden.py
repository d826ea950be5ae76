"""A whole round with scripted entropy, message by message, against its recorded digests."""

import json
from hashlib import sha256
from pathlib import Path

from oracles.rounds import cohort
from oracles.transcript import Transcript, transcript
from skellam.secagg.simulation import Stage

GOLDEN = Path(__file__).parents[1] / "vectors" / "secagg_transcript.json"


def digests(honest: Transcript) -> dict:
    received = {
        f"{stage.value} to {number}": sha256(data).hexdigest()
        for (stage, number), data in honest.received.items()
        if stage is not Stage.ADVERTISE_KEYS
    }
    sent = {
        f"{stage.value} from {number}": sha256(data).hexdigest()
        for stage, messages in honest.sent.items()
        for number, data in messages.items()
    }
    return {
        "round": honest.members.round.digest.hex(),
        "sent": sent,
        "received": received,
        "total": honest.outcome.total.values.tolist(),
        "noise_seeds": {str(n): seed.hex() for n, seed in honest.outcome.noise_seeds.items()},
    }


def scripted() -> dict[str, dict]:
    four = cohort(4, 5, bits=12, dropouts=1, removable=True)
    sparse = digests(transcript(cohort(130, 2, bits=20, dropouts=3)))
    return {
        "everybody": digests(transcript(four)),
        "one dropout": digests(transcript(four, dropouts={Stage.MASKED_INPUT: four.numbers[1:2]})),
        "sparse": {**sparse, "received": _fold(sparse["received"]), "sent": _fold(sparse["sent"])},
    }


def _fold(named: dict[str, str]) -> str:
    return sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()


def record() -> None:
    """Write the vectors anew: only where the protocol itself changes, with its version byte."""
    origin = (
        "version 3 of the protocol (skellam 0.2: a tolerance in the round's parameters, one noise "
        "seed a client, one signature a dealing, envelopes in receipts); recorded by record() in "
        "tests/secagg/test_golden.py, scripted entropy"
    )
    text = json.dumps({"origin": origin, "rounds": scripted()}, indent=1, sort_keys=True)
    GOLDEN.write_text(text + "\n")


def test_a_scripted_round_gives_the_recorded_messages():
    golden = json.loads(GOLDEN.read_text())
    assert scripted() == golden["rounds"]
