"""A fleet in this process: key files, node files, a small app and its server."""

from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from skellam.accounting.ledger import Ledger
from skellam.engines.flower import InProcessGrid, SecureGrid, protect
from skellam.engines.key_files import read_roster, write_identity, write_roster
from skellam.entropy import SystemEntropy
from skellam.plan import Plan
from skellam.secagg import Identity

SHAPES = {"weight": (7, 3), "bias": (3,)}
D = 24
LIMITS = {
    "round_epsilon": 3.0,
    "total_epsilon": 15.0,
    "delta": 1e-5,
    "min_cohort": 3,
    "max_participations": 10,
    "min_colluding": 0.1,
}


def plan(**changes):
    settings = {
        "dimension": D,
        "clip": 1.0,
        "cohort": 5,
        "rounds": 10,
        "sampling": "all",
        "bits": 16,
        "dropout": 0.2,
        "colluding": 0.2,
    }
    z = changes.pop("z", 2.0)
    return Plan(**{**settings, **changes}).with_noise(z, delta=1e-5)


def node_files(folder, count=5, numbers=None, **limits):
    """Write keys, roster and node files, and return the node configurations."""
    folder.mkdir(exist_ok=True)
    numbers = numbers or range(1, count + 1)
    publics = [
        write_identity(folder / f"{n}.key", Identity.generate(n, entropy=SystemEntropy()))
        for n in numbers
    ]
    write_roster(folder / "roster.json", publics)
    for n in numbers:
        lines = [f'identity = "{n}.key"', 'roster = "roster.json"', f'spend = "{n}.spend"']
        lines += ["[limits]", *(f"{k} = {v}" for k, v in {**LIMITS, **limits}.items())]
        (folder / f"{n}.toml").write_text("\n".join(lines))
    return [{"partition-id": n, "skellam": str(folder / f"{n}.toml")} for n in numbers]


def model(value=0.0, **others):
    arrays = {k: np.full(shape, value, dtype=np.float32) for k, shape in SHAPES.items()}
    return ArrayRecord({k: Array(np.asarray(v)) for k, v in {**arrays, **others}.items()})


def flat(record):
    return np.concatenate([record[k].numpy().ravel() for k in SHAPES])


def step(number):
    """What client ``number`` adds to every parameter."""
    return np.float32(0.01 * number)


def train(message, context):
    """Add `step` to the model and report metrics."""
    number = context.node_config["partition-id"]
    arrays = {
        name: a.numpy() + (step(number) if a.numpy().dtype.kind == "f" else 1)
        for name, a in message.content["arrays"].items()
    }
    record = ArrayRecord({k: Array(np.asarray(v)) for k, v in arrays.items()})
    content = {"arrays": record, "metrics": MetricRecord({"num-examples": 10 * number})}
    return Message(RecordDict(content), reply_to=message)


def client_app(function=train, *, entropy=None, **options):
    app = ClientApp()
    protect(app, entropy=entropy or SystemEntropy(), **options)(function)
    return app


@dataclass
class Fleet:
    """Everything that a run needs; ``start`` runs a strategy."""

    folder: object
    plan: Plan = field(default_factory=plan)
    app: ClientApp = field(default_factory=client_app)
    count: int = 5
    limits: dict = field(default_factory=dict)
    budget: float = 100.0

    def __post_init__(self):
        self.nodes = node_files(self.folder / "nodes", self.count, **self.limits)
        self.roster = read_roster(self.folder / "nodes" / "roster.json")
        self.ledger_path = self.folder / "server.ledger"
        self.runs = 0
        Ledger.create(self.ledger_path, epsilon=self.budget, delta=1e-5).close()

    def grid(self, **network):
        self.runs += 1
        return InProcessGrid(self.app, self.nodes, run_id=self.runs, **network)

    def start(
        self, *, rounds=1, strategy=None, arrays=None, grid=None, plan=None, network=None, **options
    ):
        """Return Flower's result and the reports of the rounds."""
        strategy = strategy or FedAvg(fraction_evaluate=0.0)
        with Ledger.open(self.ledger_path) as ledger:
            secure = SecureGrid(
                grid or self.grid(**(network or {})),
                plan or self.plan,
                ledger,
                strategy=strategy,
                roster=self.roster,
                **{"entropy": SystemEntropy(), "stage_timeout": 0.2, **options},
            )
            result = strategy.start(secure, arrays or model(), num_rounds=rounds, timeout=0.2)
        return result, secure.reports
