"""Fine-tune a small language model by adapters (LoRA), privately, on text of many users.

Run: python examples/adapters.py [--texts roles.json.gz] [--rounds 60] [--peft]

A transformer of characters is pretrained on public text: the language reference that Python
carries. The users' text is private: the docstrings of one module of the standard library each, or
the pieces of ``--texts``, a compressed JSON object {user: [text, ...]}. Every weight of the
pretrained model is frozen. Beside each linear layer W there is B A: A is drawn once and frozen, B
begins at zero and is trained, so that updates are linear in what is summed, and few. With
``--peft`` the same adapters come from the package peft.
"""

import argparse
import ast
import gzip
import json
import math
import string
import sysconfig
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

import skellam as sk
from skellam import federated as fl

CHARACTERS = {
    c: n for n, c in enumerate(string.ascii_letters + string.digits + " .,:;'\"()-_\n", 1)
}
VOCABULARY, LENGTH = len(CHARACTERS) + 1, 64


class Block(nn.Module):
    """One layer of a transformer that looks back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.query, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.query(self.norms[0](x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class Characters(nn.Module):
    """Names the next character of a text."""

    def __init__(self, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, VOCABULARY))

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.embed(tokens) + self.position(positions)))


class Adapter(nn.Module):
    """A frozen linear layer and its change B A, of which B is trained."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer
        self.a = nn.Linear(layer.in_features, rank, bias=False).requires_grad_(False)
        self.b = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.b(self.a(x))


def add_adapters(model: nn.Module, rank: int) -> nn.Module:
    model.requires_grad_(False)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, Adapter(child, rank))
    return model


def add_peft_adapters(model: nn.Module, rank: int) -> nn.Module:
    import peft

    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    chosen = peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=linear)
    made = peft.get_peft_model(model, chosen)
    for name, parameter in made.named_parameters():
        parameter.requires_grad_("lora_B" in name)  # A stays as it was drawn
    return made


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def windows(text: str) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.array([CHARACTERS.get(c, 0) for c in text])
    rows = np.stack([numbers[i : i + LENGTH + 1] for i in range(0, len(numbers) - LENGTH, LENGTH)])
    return rows[:, :-1], rows[:, 1:]


def pretrained(steps: int) -> nn.Module:
    """Train on public text, by hand."""
    torch.manual_seed(1)
    model = Characters()
    tokens, after = map(torch.from_numpy, windows("\n".join(topics.values())))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        rows = torch.randint(len(tokens), (32,))
        optimizer.zero_grad()
        loss(model(tokens[rows]), after[rows]).backward()
        optimizer.step()
    return model


def docstrings(count: int) -> dict[str, str]:
    """Return the text of ``count`` users: the docstrings of a module each."""
    root, found = Path(sysconfig.get_path("stdlib")), {}
    for path in sorted([*root.glob("*.py"), *root.glob("[a-hj-su-z]*/*.py")]):
        if "site-packages" in path.parts:
            continue
        nodes = ast.walk(ast.parse(path.read_bytes()))
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        text = "\n".join(
            filter(None, (ast.get_docstring(n) for n in nodes if isinstance(n, kinds)))
        )
        if len(text) > 10 * LENGTH:
            found[str(path.relative_to(root))] = text
        if len(found) == count:
            break
    return found


def pieces(path: Path, count: int) -> dict[str, str]:
    content = json.loads(gzip.decompress(path.read_bytes()))
    joined = ((user, "\n".join(said)) for user, said in content.items())
    return dict([(user, text) for user, text in joined if len(text) > 10 * LENGTH][:count])


def main(arguments: list[str] | None = None) -> dict[str, float]:
    chosen = parse(arguments)
    texts = pieces(chosen.texts, chosen.users) if chosen.texts else docstrings(chosen.users)
    names = list(texts)
    held_out = windows("\n".join(texts[name] for name in names[::10]))
    clients = {name: windows(texts[name]) for name in names if name not in names[::10]}
    add = add_peft_adapters if chosen.peft else add_adapters
    net = add(pretrained(chosen.pretraining), rank=4)
    task = fl.Task(
        net,
        clients,
        loss=loss,
        optimizer=fl.sgd(1.0),
        batch_size=8,
        max_examples=32,
        validation=tuple(part[:400] for part in held_out),
        name="adapters",
    )
    plan = sk.Plan(
        dimension=task.dimension,
        clip=0.5,
        cohort=chosen.cohort,
        population=100_000,  # hypothetical: the accounting is for a fleet, not for these few
        rounds=chosen.rounds,
        bits=12,
    ).calibrated(epsilon=chosen.epsilon, delta=1e-6)
    found = {"pretrained": measured(task, task.initial(entropy=sk.SystemEntropy()))}
    for name, aggregate in {
        f"private, epsilon {chosen.epsilon:g}": fl.unmasked(),
        "without privacy": fl.non_private(),
    }.items():
        history = fl.train(
            task,
            plan,
            aggregate=aggregate,
            entropy=sk.SystemEntropy(),
            server=fl.fedavg(momentum=0.9),
            every=chosen.rounds,
        )
        found[name] = math.exp(history.records[-1].validation["loss"])
    table = Table("model", "perplexity of a character")
    for name, value in found.items():
        table.add_row(name, f"{value:.2f}")
    Console().print(table)
    whole = sum(p.numel() for p in net.parameters())
    print(
        f"{task.dimension:,} of {whole:,} weights are trained; a client sends {plan.bits} bits a "
        f"coordinate, {plan.bytes_per_client / 1000:.1f} kB a round"
    )
    return found


def measured(task: fl.Task, model: np.ndarray) -> float:
    return math.exp(task.worker().measure(model)[1]["loss"])


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--users", type=int, default=400)
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--pretraining", type=int, default=600)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--peft", action="store_true", help="adapters of the package peft")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
