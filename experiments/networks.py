"""Small networks for the stand-ins, whose clients can be trained together (``Task.vmap``)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from skellam.tasks import models


def images(classes: int) -> nn.Module:
    """Return a convolutional network of 5,994 parameters for 10 classes, 19,358 for 62."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, classes),
    )


def language(tokens: int, *, embedding: int, context: int, hidden: int) -> nn.Module:
    """Return the prediction of the next token from the last ``context`` ones.

    The paper's networks are recurrent: they need more rounds than these runs have, and torch maps
    no recurrent layer over clients.
    """
    return nn.Sequential(
        nn.Embedding(tokens, embedding),
        Context(context),
        nn.Linear(context * embedding, hidden),
        nn.ReLU(),
        nn.Linear(hidden, tokens),
    )


class Context(nn.Module):
    """Puts beside each element of a sequence the ``width - 1`` before it, zeros at its start."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def forward(self, sequences: Tensor) -> Tensor:
        """Return (batch, length, width * features) of (batch, length, features)."""
        length = sequences.shape[1]
        earlier = [functional.pad(sequences, (0, 0, k, 0))[:, :length] for k in range(self._width)]
        return torch.cat(earlier, dim=2)


def weights(model: nn.Module) -> None:
    """Draw all weights as Keras does, but embeddings from a normal law of deviation 1.

    With Keras' own, of at most 0.05, all tokens are alike for the first tens of rounds.
    """
    models.keras_weights(model)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)
