import json
import subprocess
import sys
from dataclasses import replace

import pytest

import skellam as sk
from oracles.page_reader import PageReader
from oracles.tiny_task import plan, seeded, task
from skellam import federated as fl
from skellam import report
from skellam.engines import durable
from skellam.errors import DataError, LedgerError

SECRETS = ("918273645", "0.735192846", "0.418273645", "5eed" * 16, "writer-f0417")


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    return train(tmp_path_factory.mktemp("run"))


def train(folder, entropy=None, aggregate=None, clip=None, **changes):
    return fl.train(
        task(),
        plan(**changes),
        aggregate=aggregate or fl.unmasked(),
        entropy=entropy or sk.SystemEntropy(),
        clip=clip,
        folder=folder,
    )


@pytest.fixture
def run(history):
    return report.read(history.folder)


def test_the_page_has_the_numbers_that_training_returned(history):
    text = PageReader(report.write(history.folder).read_text()).text
    public, server, mean = history.guarantees
    assert f"{100 * history.records[-1].test_accuracy:.1f} %" in text
    assert f"{report.markup.bound(mean.epsilon)} for the mean client, which is no bound" in text
    for guarantee in (public, server):
        assert report.markup.bound(guarantee.epsilon) in text
        assert all(line in text for line in guarantee.assumptions[:-1])
    assert history.header.population in text


def test_the_guarantees_are_those_that_training_returned(history, run):
    assert [g.epsilon for g in run.guarantees] == [g.epsilon for g in history.guarantees]


def test_the_page_explains_the_plan_and_gives_it_back(history, run):
    page = PageReader(report.page(run))
    for line in run.header.plan.explain().lines:
        assert line.name in page.text
        assert line.why in page.text
    assert sk.Plan.from_json(page.inside("pre")[-1]) == run.header.plan


def test_the_ledger_is_named_by_the_digest_of_its_last_line(history, run):
    last = (history.folder / "ledger").read_text().splitlines()[-1]
    assert json.loads(last)["digest"] in PageReader(report.page(run)).inside("pre")


def test_every_chart_has_a_title_a_description_and_a_table_beside_it(run):
    page = PageReader(report.page(run))
    charts = [a for name, a in page.elements if name == "svg" and a.get("role") == "img"]
    ids = {a["id"] for _, a in page.elements if "id" in a}
    assert len(charts) == 4
    assert all(set(a["aria-labelledby"].split()) <= ids for a in charts)
    rows = [text for text in page.inside("tr") if text.count(" %") == 2]
    assert len(rows) == len(run.measured)


def test_the_page_asks_for_nothing_from_anywhere(run):
    page = PageReader(report.page(run))
    assert not {"script", "img", "iframe", "object"} & {name for name, _ in page.elements}
    for _, attributes in page.elements:
        for key in ("src", "href", "xlink:href", "style"):
            assert attributes.get(key, "data:,") == "data:,"
    assert "url(" not in report.page(run)
    assert "@import" not in report.page(run)


def test_secrets_of_the_operator_leave_no_trace(history):
    """The page is the same whatever the secret files hold, and also if they are not there."""
    before = report.write(history.folder).read_text()
    (history.folder / "operator.jsonl").write_text(
        "\n".join(json.dumps({"round": 0, "secret": secret}) for secret in SECRETS)
    )
    (history.folder / "checkpoint.npz").write_bytes(" ".join(SECRETS).encode())
    planted = report.write(history.folder).read_text()
    (history.folder / "operator.jsonl").unlink()
    (history.folder / "checkpoint.npz").unlink()
    assert before == planted == report.write(history.folder).read_text()
    assert not any(secret in planted for secret in SECRETS)


@pytest.mark.parametrize("field", ["train_loss", "cohort", "members", "clip_rate", "seed"])
def test_a_history_with_a_secret_in_it_is_refused(tmp_path, history, field):
    (tmp_path / "run.json").write_bytes((history.folder / "run.json").read_bytes())
    smuggled = {"round": 0, field: SECRETS[0]}
    (tmp_path / "history.jsonl").write_text(json.dumps(smuggled) + "\n")
    with pytest.raises(DataError, match=field):
        report.write(tmp_path)


def test_text_from_the_run_is_never_markup(run):
    evil = '</style><script>alert("1")</script><img src=x onerror=y>&amp;'
    header = replace(
        run.header, task=evil, training=evil, server=evil, aggregate=evil, population=evil
    )
    records = (*run.records, replace(run.records[-1], skipped=evil))
    page = PageReader(report.page(report.Run(header, records, run.ledger)))
    assert not {"script", "img"} & {name for name, _ in page.elements}
    assert page.text.count('alert("1")') >= 6


def test_a_clip_that_adapts_is_drawn_and_repeated(tmp_path):
    clip = fl.AdaptiveClip(clip=0.0625)
    history = train(tmp_path, clip=clip, quantile_noise=0.1)
    page = PageReader(report.write(tmp_path).read_text())
    assert "The clip" in page.text
    assert f"clip={clip!r}".replace("clip=Adap", "clip=fl.Adap") in page.text
    assert report.markup.number(history.records[-1].clip) in page.text


def test_the_number_against_the_server_is_the_bound_for_every_client(history, run):
    page = PageReader(report.page(run))
    values = [text for text in page.inside("div") if text.startswith("ε against the server")]
    expected = report.markup.bound(history.guarantees.server.epsilon)
    assert values[0].removeprefix("ε against the server").split("for every")[0].strip() == expected


def test_the_share_of_clients_that_were_clipped_is_shown_where_it_was_spent_on(tmp_path, run):
    history = train(tmp_path, clip=fl.AdaptiveClip(clip=0.0625), quantile_noise=0.1)
    page = PageReader(report.write(tmp_path).read_text())
    shares = [record.clipped for record in history.records]
    assert all(share is not None for share in shares)
    assert "clients that the clip touched" in page.text
    assert report.markup.percent(min(max(shares[-1], 0), 1)) in page.text
    assert "the clip touched" not in PageReader(report.page(run)).text


def test_measures_of_ones_own_have_cards_charts_and_columns(run):
    measured = {"loss": 0.5, "mae": 0.25, "r <2>": 0.75}
    records = tuple(replace(r, test={}, validation=measured) for r in run.records)
    page = PageReader(report.page(report.Run(run.header, records, run.ledger)))
    assert "validation mae0.25loss 0.5" in page.text
    assert "Mae on public data" in page.text
    assert "R <2> on public data" in page.text
    assert "validation r <2>" in page.inside("th")
    assert "accuracy" not in page.text.lower()


def test_a_loss_alone_is_a_card_of_its_own(run):
    records = tuple(replace(r, test={"loss": 0.125}, validation={}) for r in run.records)
    page = PageReader(report.page(report.Run(run.header, records, run.ledger)))
    assert "test loss" in page.text
    assert "0.125" in page.text


def test_with_a_seed_no_epsilon_is_shown(tmp_path):
    folder = train(tmp_path, entropy=seeded()).folder
    page = PageReader(report.write(folder).read_text())
    assert "There is no guarantee" in page.text
    assert "epsilon, public" not in page.text
    assert "differential privacy" not in page.text


def test_without_noise_the_page_says_that_nothing_is_private(tmp_path):
    folder = train(tmp_path, aggregate=fl.non_private()).folder
    page = PageReader(report.write(folder).read_text())
    assert "not private" in page.text
    assert "noise multiplier" not in page.text
    assert "differential privacy" not in page.text


def test_a_ledger_that_is_kept_elsewhere_is_read_where_it_is(tmp_path, history, run):
    without = report.Run(run.header, run.records)
    assert "kept elsewhere" in report.page(without)
    assert without.guarantees is None
    for name in ("run.json", "history.jsonl"):
        (tmp_path / name).write_bytes((history.folder / name).read_bytes())
    again = report.read(tmp_path, ledger=history.folder / "ledger")
    assert again.guarantees == run.guarantees


def test_a_changed_ledger_gives_no_page(tmp_path):
    folder = train(tmp_path, rounds=2).folder
    ledger = folder / "ledger"
    ledger.write_text(ledger.read_text().replace('"rounds":1', '"rounds":0', 1))
    with pytest.raises(LedgerError, match="line"):
        report.write(folder)
    assert not (folder / "report.html").exists()


def test_a_folder_without_a_run_is_an_error(tmp_path):
    with pytest.raises(DataError, match="holds no run"):
        report.write(tmp_path)


def test_a_long_run_has_a_page_of_bounded_charts(run):
    records = tuple(replace(run.records[-1], round=i) for i in range(2000))
    page = PageReader(report.page(report.Run(run.header, records, run.ledger)))
    hovers = [a for name, a in page.elements if name == "g" and a.get("class") == "hover"]
    assert len(hovers) <= 4 * 200
    assert len(page.inside("tr")) > 2000


def test_a_run_that_has_just_begun_has_a_page(run):
    page = PageReader(report.page(report.Run(run.header, (), run.ledger)))
    assert "0 of 5 rounds" in page.text


def test_skipped_rounds_are_said(run):
    skipped = fl.Record(round=5, skipped="too few clients")
    page = report.page(report.Run(run.header, (*run.records, skipped), run.ledger))
    assert "1 of them released nothing (too few clients)" in page


def test_lone_surrogates_do_not_stop_the_page(tmp_path):
    folder = train(tmp_path, rounds=1).folder
    header = durable.unseal_record(json.loads((folder / "run.json").read_text()))
    changed = durable.seal_record({**header, "task": "\ud800"})
    (folder / "run.json").write_text(json.dumps(changed))
    assert report.write(folder).read_text(encoding="utf-8")


def test_importing_the_report_imports_nothing_heavy():
    code = (
        "import sys, skellam.report;"
        "print({'torch', 'scipy', 'matplotlib', 'numba'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
