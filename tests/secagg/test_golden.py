"""A whole round with scripted entropy, message by message, against its recorded digests."""

import json
from hashlib import sha256
from pathlib import Path

from oracles.rounds import cohort
from oracles.transcript import Transcript, transcript
from skellam.secagg.bus import Stage

GOLDEN = Path(__file__).parents[1] / "vectors" / "secagg_transcript.json"


def digests(honest: Transcript) -> dict:
    letters = {
        f"{stage.value} to {number}": sha256(data).hexdigest()
        for (stage, number), data in honest.letters.items()
        if stage is not Stage.ADVERTISE
    }
    sent = {
        f"{stage.value} from {number}": sha256(data).hexdigest()
        for stage, messages in honest.sent.items()
        for number, data in messages.items()
    }
    return {
        "round": honest.members.round.digest.hex(),
        "sent": sent,
        "letters": letters,
        "total": honest.outcome.total.values.tolist(),
        "noise_seeds": {
            f"{j} of {number}": seed.hex()
            for j, seeds in honest.outcome.noise_seeds.items()
            for number, seed in seeds.items()
        },
    }


def scripted() -> dict[str, dict]:
    four = cohort(4, 5, bits=12, dropouts=1, removable=True)
    sparse = digests(transcript(cohort(130, 2, bits=20, dropouts=3)))
    return {
        "everybody": digests(transcript(four)),
        "one dropout": digests(transcript(four, silent={Stage.MASK: four.numbers[1:2]})),
        "sparse": {**sparse, "letters": _fold(sparse["letters"]), "sent": _fold(sparse["sent"])},
    }


def _fold(named: dict[str, str]) -> str:
    return sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()


def record() -> None:
    """Write the vectors anew: only where the protocol itself changes, with its version byte."""
    origin = "recorded by record() in tests/secagg/test_golden.py, with scripted entropy"
    text = json.dumps({"origin": origin, "rounds": scripted()}, indent=1, sort_keys=True)
    GOLDEN.write_text(text + "\n")


def test_a_scripted_round_gives_the_recorded_messages():
    golden = json.loads(GOLDEN.read_text())
    assert scripted() == golden["rounds"]
