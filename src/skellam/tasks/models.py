"""Models: the paper's three, with exactly its numbers of parameters, and smaller ones.

They are ordinary modules. The initialisers draw what the authors' Keras layers draw
(google-research/federated: the network of 1,018,174 parameters, and utils/models).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

_TRUNCATED = 0.87962566103423978
"""Standard deviation of a normal variable that is cut off at two of its own."""


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
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * 11 * 11, 128),
        nn.ReLU(),
        nn.Dropout(0.25),
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


def keras_weights(model: nn.Module) -> None:
    """Draw all weights as Keras does unless it is told otherwise.

    Kernels are uniform (Glorot and Bengio 2010), recurrent ones orthogonal, embeddings uniform in
    (-0.05, 0.05); biases are 0, those of forgetting 1.
    """
    _draw(model, recurrent=nn.init.xavier_uniform_, dense=nn.init.xavier_uniform_)


def shakespeare_weights(model: nn.Module) -> None:
    """Draw all weights as the authors' network for Shakespeare does.

    As `keras_weights`, but kernels are normal: recurrent layers' by He et al. (2015), dense ones'
    by Glorot and Bengio (2010).
    """
    _draw(model, recurrent=_he_normal, dense=_glorot_normal)


@torch.no_grad()
def _draw(
    model: nn.Module,
    *,
    recurrent: Callable[[Tensor], object],
    dense: Callable[[Tensor], object],
) -> None:
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.uniform_(module.weight, -0.05, 0.05)
        elif isinstance(module, nn.LSTM):
            weights = dict(module.named_parameters())
            recurrent(weights["weight_ih_l0"])
            nn.init.orthogonal_(weights["weight_hh_l0"])
            bias = weights["bias_ih_l0"]
            bias.zero_()
            bias[len(bias) // 4 : len(bias) // 2] = 1
        elif isinstance(module, nn.Linear | nn.Conv2d):
            dense(module.weight)
            if module.bias is not None:
                module.bias.zero_()


def _he_normal(weight: Tensor) -> None:
    _truncated_normal(weight, math.sqrt(2 / weight.shape[1]))


def _glorot_normal(weight: Tensor) -> None:
    receptive = weight[0, 0].numel()
    _truncated_normal(weight, math.sqrt(2 / (receptive * (weight.shape[0] + weight.shape[1]))))


def _truncated_normal(weight: Tensor, deviation: float) -> None:
    spread = deviation / _TRUNCATED
    nn.init.trunc_normal_(weight, std=spread, a=-2 * spread, b=2 * spread)
