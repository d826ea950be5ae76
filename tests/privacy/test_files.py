"""What a run leaves in its folder: the public files say nothing that the releases do not.

Two runs whose rounds release the same sums, from cohorts of other members and other sizes with
other dropouts, must leave the same public files, byte for byte. All else in the folder is the
operator's, and nobody else may read it.
"""

import json
import stat

import pytest

from privacy import releases

SMALL = [((0, 1, 2, 3), ()), ((4, 5, 6, 7, 8), ()), ((1, 3, 5, 7), ()), ((0, 2, 4, 6), ())]
LARGE = [
    (tuple(range(12)), (3, 7)),
    (tuple(range(1, 11)), (2,)),
    (tuple(range(12)), (0,)),
    (tuple(range(2, 12)), ()),
]
SOME_SKIPPED = [SMALL[0], ((5,), ()), SMALL[2], ((), ())]
OTHERS_SKIPPED = [LARGE[0], ((8,), ()), LARGE[2], ((3,), ())]
PAIRS = {"all rounds run": (SMALL, LARGE), "two are skipped": (SOME_SKIPPED, OTHERS_SKIPPED)}


def public_files(folder):
    """Return the content of every public file but TensorBoard's, whose names hold the time."""
    names = [name for name, audience in releases.FILES.items() if audience == releases.PUBLIC]
    return {name: (folder / name).read_bytes() for name in names if name != "tensorboard"}


def events(folder):
    """Return all that TensorBoard's files hold, but for when each was begun."""
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    found = [
        event
        for path in sorted((folder / "tensorboard").iterdir())
        for event in loader.EventFileLoader(str(path)).Load()
    ]
    numbers = [bool(event.summary.value) for event in found]
    assert numbers == sorted(numbers), "something but numbers was written after the first round"
    return [(e.wall_time, e.step, str(e.summary)) for e in found if e.summary.value]


@pytest.mark.parametrize("adaptive", [False, True], ids=["fixed clip", "adaptive clip"])
@pytest.mark.parametrize("pair", PAIRS)
def test_public_files_do_not_depend_on_who_took_part_or_how_many(tmp_path, pair, adaptive):
    first, second = tmp_path / "first", tmp_path / "second"
    histories = [
        releases.train(folder, secrets, adaptive=adaptive)
        for folder, secrets in zip((first, second), PAIRS[pair], strict=True)
    ]
    assert public_files(first) == public_files(second)
    assert releases.shown_history(histories[0]) == releases.shown_history(histories[1])
    assert (first / "operator.jsonl").read_text() != (second / "operator.jsonl").read_text()


def test_nor_do_the_files_of_tensorboard(tmp_path):
    folders = [tmp_path / name for name in ("first", "second")]
    for folder, secrets in zip(folders, (SMALL, LARGE), strict=True):
        releases.train(folder, secrets)
    first, second = map(events, folders)
    assert first == second


def test_an_events_time_is_its_round(tmp_path):
    releases.train(tmp_path / "run", LARGE)
    shown = events(tmp_path / "run")
    assert shown
    assert all(time == step for time, step, _ in shown)


def test_every_file_is_for_somebody_and_the_operators_are_closed_to_others(tmp_path):
    releases.train(tmp_path / "run", LARGE)
    left = {path.name: path for path in (tmp_path / "run").iterdir()}
    assert set(left) <= set(releases.FILES)
    for name, path in left.items():
        mode = stat.S_IMODE(path.stat().st_mode)
        if releases.FILES[name] == releases.OPERATOR:
            assert mode & 0o077 == 0
    assert {"operator.jsonl", "checkpoint.npz"} <= set(left)


def test_the_operator_is_told_what_the_public_is_not(tmp_path):
    releases.train(tmp_path / "run", LARGE)
    lines = (tmp_path / "run" / "operator.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    assert [line["survivors"] for line in told] == [10, 9, 11, 10]
    public = " ".join((tmp_path / "run" / "history.jsonl").read_text().split())
    for word in ("invited", "survivors", "members", "cohort_size", "dropouts", "seconds", "time"):
        assert f'"{word}"' not in public
