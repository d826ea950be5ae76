"""``skellam helper``: the second of two servers, run by another organisation than the leader's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skellam.cli.answer import AsJson, answer, table
from skellam.errors import DomainError

if TYPE_CHECKING:
    from skellam.engines.helper.service import RunStatus
    from skellam.twoserver import ChainHead

app = typer.Typer(
    help="Run the helper of two servers: it adds up masks and noise, and sees no vector.",
    no_args_is_help=True,
)
Config = Annotated[Path, typer.Argument(help="The helper's folder, or its TOML file.")]


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="Where the helper's files go.")],
    *,
    epsilon: Annotated[
        float, typer.Option(help="What any one client may lose against the leader, in all.")
    ] = 8.0,
    delta: Annotated[float, typer.Option(help="Below one over the number of clients.")] = 1e-6,
    min_cohort: Annotated[int, typer.Option(help="Fewest clients in a sum.")] = 20,
    participations: Annotated[int, typer.Option(help="Rounds of one client in a run.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Make a helper's key and its TOML file, on the helper's own machine.

    \b
    skellam helper new helper --epsilon 8 --delta 1e-6 --min-cohort 20
    """
    from skellam.engines.helper.config import write_new
    from skellam.entropy import SystemEntropy

    file, public = write_new(
        folder,
        entropy=SystemEntropy(),
        epsilon=epsilon,
        delta=delta,
        min_cohort=min_cohort,
        participations=participations,
    )
    answer(
        {"config": str(file), "public": str(public)},
        f"{folder / 'helper.key'} is secret and stays here; give {public} to leader and clients",
        f"next: put the leader's public key and the clients' roster beside {file}, "
        f"then skellam helper serve {folder}",
        as_json=as_json,
    )


@app.command()
def serve(
    config: Config,
    *,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")] = 8443,
) -> None:
    """Answer a leader until told to stop; one durable write a round.

    \b
    skellam helper serve helper --host 0.0.0.0 --port 8443
    """
    from skellam.engines.helper import HelperConfig, HelperService, web
    from skellam.entropy import SystemEntropy

    loaded = HelperConfig.load(config)
    with HelperService(loaded, entropy=SystemEntropy()) as service:
        scheme = "http" if loaded.tls is None else "https"
        typer.echo(f"the helper answers at {scheme}://{host}:{port}", err=True)
        web.serve(loaded, service, host=host, port=port)


@app.command()
def status(config: Config, *, as_json: AsJson = False) -> None:
    """Show runs, rounds, chains and what is left of the budget; a running helper goes on."""
    from skellam.accounting.ledger import Ledger
    from skellam.engines.helper import HelperConfig
    from skellam.engines.helper.service import LEDGER, verify

    loaded = HelperConfig.load(config)
    path = loaded.state / LEDGER
    budget = loaded.limits.budget
    account = Ledger.verify(path) if path.exists() else None
    runs = verify(loaded) if path.exists() else []
    left = budget.epsilon if account is None else account.remaining()
    _show(runs, {"total_epsilon": budget.epsilon, "remaining": left}, as_json=as_json)


@app.command()
def verify(
    config: Config,
    *,
    head: Annotated[
        list[str] | None,
        typer.Option(help="A head that somebody kept, as RUN:LINKS:DIGEST in hexadecimal."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every file of the helper: checksums, signatures, chains, and the ledger.

    A folder that was restored from an older copy lacks a head that leader or clients kept.

    \b
    skellam helper verify helper --head 3f..0a:12:9c..77
    """
    from skellam.engines.helper import HelperConfig
    from skellam.engines.helper import service as helper

    runs = helper.verify(HelperConfig.load(config), dict(map(_head, head or [])))
    _show(runs, {"verified": True}, as_json=as_json)


@app.command()
def end(
    config: Config,
    run: Annotated[str, typer.Argument(help="The run's id, or how it begins.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Erase the keys of a run that its leader left open; stop the helper first.

    A leader ends its runs itself. What was sealed in a run that has ended can never be opened, and
    none of its rounds is answered; its record and what it spent are kept.

    \b
    skellam helper end helper 3f91c07b
    """
    from skellam.engines.helper import HelperConfig, HelperService
    from skellam.entropy import SystemEntropy

    with HelperService(HelperConfig.load(config), entropy=SystemEntropy()) as service:
        found = [one.run_id for one in service.status() if one.run_id.hex().startswith(run)]
        if len(found) != 1:
            raise DomainError(f"{len(found)} runs begin with {run!r}; name one, as status does")
        service.end(found[0])
        _show(service.status(), {"ended": found[0].hex()}, as_json=as_json)


def _head(text: str) -> tuple[bytes, ChainHead]:
    from skellam.twoserver import ChainHead

    try:
        run, count, digest = text.split(":")
        return bytes.fromhex(run), ChainHead(int(count), bytes.fromhex(digest))
    except ValueError as error:
        raise DomainError(f"--head takes RUN:LINKS:DIGEST, got {text!r}") from error


def _show(runs: Sequence[RunStatus], facts: dict[str, Any], *, as_json: bool) -> None:
    records = [
        {
            "run": run.run_id.hex(),
            "next_round": run.next_round,
            "rounds": run.constants.rounds,
            "ended": run.ended,
            "clients": run.clients,
            "max_participations": run.max_participations,
            "head": f"{run.run_id.hex()}:{run.head.count}:{run.head.digest.hex()}",
        }
        for run in runs
    ]
    rows = [
        [
            run.run_id.hex()[:16],
            f"{run.next_round}/{run.constants.rounds}",
            str(run.clients),
            f"{run.max_participations}/{run.constants.participations}",
            f"{run.head.count}:{run.head.digest.hex()[:16]}",
        ]
        for run in runs
    ]
    headings = ["run", "rounds", "clients", "participations", "head"]
    lines = [f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()]
    answer({"runs": records, **facts}, table(headings, rows), *lines, as_json=as_json)
