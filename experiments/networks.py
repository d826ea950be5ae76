"""Small networks for the stand-ins."""

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


class Bigrams(nn.Module):
    """The prediction of the next word by its bias, and by a table of pairs of ``common`` words.

    Tokens are as in `skellam.tasks`: padding, words from the commonest on, unknown, begin, end. A
    small vocabulary will not do: where a sixth of all words is unknown that is the best guess, and
    it counts as wrong.
    """

    def __init__(self, tokens: int, *, common: int) -> None:
        super().__init__()
        self.pairs = nn.Embedding(common + 1, common)
        self.bias = nn.Parameter(torch.zeros(tokens))

    def forward(self, sequences: Tensor) -> Tensor:
        """Return (batch, length, tokens) of (batch, length)."""
        rows = len(self.pairs.weight)
        logits = self.pairs(torch.where(sequences < rows, sequences, 0))
        return self.bias + functional.pad(logits, (1, len(self.bias) - rows))

    def begin(self) -> None:
        """Begin with Zipf's law, which needs the order of the vocabulary alone, and no pairs."""
        nn.init.zeros_(self.pairs.weight)
        zipf = -torch.log(torch.arange(len(self.bias)) + 2.0)
        zipf[[-3, -1]] = -2.0  # unknown and the end of a sentence: as common as the first words
        zipf[[0, -2]] = -10.0  # padding and begin are never targets
        with torch.no_grad():
            self.bias.copy_(zipf)


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
    if isinstance(model, Bigrams):
        model.begin()
