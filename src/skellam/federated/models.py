"""The models: the paper's three, with exactly its numbers of parameters, and smaller ones.

A model is an ordinary ``torch.nn.Module``; its randomness (weights by `initialise`, dropout by
`seed_dropout`) comes from the entropy that the caller passes, never from torch's global state.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from skellam import _checks
from skellam.entropy import Entropy
from skellam.errors import ShapeError

Vector = NDArray[np.float32]


def linear(classes: int = 10) -> nn.Module:
    """Return softmax regression on 28x28 images: 7,850 parameters for ten classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, classes))


def small_cnn(classes: int = 62) -> nn.Module:
    """Return a convolutional network of 59,310 parameters (55,098 for ten classes).

    Strides in place of pooling make a step of twenty images almost three times as fast.
    """
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 80),
        nn.ReLU(),
        nn.Linear(80, classes),
    )


def paper_cnn(classes: int = 62) -> nn.Module:
    """Return the paper's network for EMNIST: 1,018,174 parameters, just below 2**20."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * 11 * 11, 128),
        nn.ReLU(),
        Dropout(0.25),
        nn.Linear(128, classes),
    )


def character_model(
    vocabulary: int = 90, *, embedding: int = 8, hidden: int = 256, layers: int = 2
) -> nn.Module:
    """Return the paper's network for Shakespeare: 820,522 parameters for 90 numbers."""
    return nn.Sequential(
        nn.Embedding(vocabulary, embedding),
        Recurrent(embedding, hidden, layers=layers),
        nn.Linear(hidden, vocabulary),
    )


def word_model(vocabulary: int = 10_004, *, embedding: int = 96, hidden: int = 670) -> nn.Module:
    """Return the paper's network for Stack Overflow: 4,050,748 parameters for 10,004 numbers."""
    return nn.Sequential(
        nn.Embedding(vocabulary, embedding),
        Recurrent(embedding, hidden, layers=1),
        nn.Linear(hidden, embedding),
        nn.Linear(embedding, vocabulary),
    )


class Recurrent(nn.Module):
    """A long short-term memory over a batch of sequences, with one bias a gate, as Keras has it.

    torch adds two biases where one would do; the second stays zero and is no parameter.
    """

    def __init__(self, inputs: int, hidden: int, *, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.LSTM(inputs if layer == 0 else hidden, hidden, batch_first=True)
            for layer in range(layers)
        )
        for layer in self.layers:
            del layer.bias_hh_l0
            layer.register_buffer("bias_hh_l0", torch.zeros(4 * hidden), persistent=False)
            # Assigning is what makes torch use the buffer in place of the deleted parameter.
            layer.bias_hh_l0 = layer.bias_hh_l0

    def forward(self, sequences: Tensor) -> Tensor:
        """Return the hidden state after each element."""
        for layer in self.layers:
            sequences, _ = layer(sequences)
        return sequences


class Dropout(nn.Module):
    """Zeroes a fraction of what passes in training, by a generator of its own."""

    def __init__(self, fraction: float) -> None:
        super().__init__()
        self.keep = 1 - _checks.between("fraction", fraction, 0, 0.99)
        self.generator: torch.Generator | None = None

    def forward(self, values: Tensor) -> Tensor:
        """Return ``values``, scaled where they are kept."""
        if not self.training:
            return values
        return values * torch.empty_like(values).bernoulli_(
            self.keep, generator=self.generator
        ).div_(self.keep)


def initialise(model: nn.Module, *, entropy: Entropy) -> None:
    """Draw the weights (Glorot and Bengio 2010, uniform); biases are 0, those of forgetting 1."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.copy_(_glorot(parameter, entropy))
            else:
                parameter.zero_()
                if name.endswith("bias_ih_l0"):
                    parameter[len(parameter) // 4 : len(parameter) // 2] = 1


def seed_dropout(model: nn.Module, *, entropy: Entropy) -> None:
    """Give every dropout layer of ``model`` random bits of its own."""
    seed = np.empty(1, dtype=np.uint32)
    for module in model.modules():
        if isinstance(module, Dropout):
            entropy.fill(seed)
            module.generator = torch.Generator().manual_seed(int(seed[0]))


def size(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def flatten(model: nn.Module) -> Vector:
    """Return all parameters as one vector, a copy."""
    parts = [parameter.detach().numpy().reshape(-1) for parameter in model.parameters()]
    return np.concatenate(parts).astype(np.float32, copy=False)


def load(model: nn.Module, vector: Vector) -> None:
    """Overwrite all parameters with ``vector``, as `flatten` gave it."""
    if vector.shape != (size(model),):
        raise ShapeError(f"the model has {size(model)} parameters, got {vector.shape}")
    source, place = torch.from_numpy(np.array(vector, dtype=np.float32)), 0
    with torch.no_grad():
        for parameter in model.parameters():
            part = source[place : place + parameter.numel()]
            parameter.copy_(part.view_as(parameter))
            place += parameter.numel()


def _glorot(parameter: Tensor, entropy: Entropy) -> Tensor:
    receptive = parameter[0, 0].numel()
    limit = math.sqrt(6 / (receptive * (parameter.shape[0] + parameter.shape[1])))
    bits = np.empty(parameter.numel(), dtype=np.int32)
    entropy.fill(bits)
    uniform = bits.astype(np.float32) * np.float32(limit * 2.0**-31)
    return torch.from_numpy(uniform).view_as(parameter)
