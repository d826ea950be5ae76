"""Torch modules as vectors: what is trained of a module, and whether private training can use it.

The vector of a module is what ``requires_grad`` says, in the order of ``parameters()``: frozen
layers are left out, and a weight that two layers share is counted once.
"""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from skellam.entropy import Entropy
from skellam.errors import DomainError, ShapeError
from skellam.federated.aggregation import Vector

_TRAINED_IN = (torch.float32, torch.float64)


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are trained."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def size(model: nn.Module) -> int:
    """Return the number of trained parameters."""
    return sum(parameter.numel() for parameter in trained(model))


def flatten(model: nn.Module) -> Vector:
    """Return the trained parameters as one vector, a copy."""
    parts = [p.detach().cpu().to(torch.float32).numpy().reshape(-1) for p in trained(model)]
    return np.concatenate(parts)


def load(model: nn.Module, vector: Vector) -> None:
    """Overwrite the trained parameters with ``vector``, as `flatten` gave it."""
    if vector.shape != (size(model),):
        raise ShapeError(f"the model has {size(model)} trained parameters, got {vector.shape}")
    source, start = torch.from_numpy(np.array(vector, dtype=np.float32)), 0
    with torch.no_grad():
        for parameter in trained(model):
            parameter.copy_(source[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()


def with_weights(model: nn.Module, vector: Vector) -> nn.Module:
    """Return a copy of ``model`` whose trained parameters are ``vector``."""
    made = copy.deepcopy(model)
    load(made, vector)
    return made


def state_octets(module: nn.Module) -> bytes:
    """Return the module's state as ``torch.save`` writes it."""
    buffer = io.BytesIO()
    torch.save({name: value.cpu() for name, value in module.state_dict().items()}, buffer)
    return buffer.getvalue()


def untrained_digest(model: nn.Module) -> str:
    """Return a digest of all that training leaves alone: frozen weights and buffers."""
    digest = sha256()
    fixed = [(name, p) for name, p in model.named_parameters() if not p.requires_grad]
    for name, tensor in (*fixed, *model.named_buffers()):
        octets = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode() + octets.tobytes())
    return digest.hexdigest()


def private_ready(model: nn.Module) -> list[str]:
    """Return what keeps ``model`` from private training, and what to do; nothing if it is fit.

    >>> from torch import nn
    >>> from skellam import federated as fl
    >>> fl.private_ready(nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Linear(8, 2)))
    []
    >>> fl.private_ready(nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8)))
    ["1 (BatchNorm1d) keeps statistics of its users' data in buffers; use fl.fix(model)"]
    """
    found = [*_not_plain(model)]
    return found or [*_buffers(model), *_parameters(model), *_overlaps(model)]


def require_ready(model: nn.Module) -> None:
    """Raise `DomainError` unless ``model`` is fit for private training."""
    if found := private_ready(model):
        raise DomainError("the model cannot be trained privately: " + "; ".join(found))


def fix(model: nn.Module) -> nn.Module:
    """Return a copy without statistics of the data: BatchNorm becomes GroupNorm.

    The learnt scale and shift stay. InstanceNorm stays too, without its running statistics.
    """
    made = copy.deepcopy(model)
    norms = {m: _group_norm(m) for m in made.modules() if isinstance(m, _BatchNorm)}
    for module in list(made.modules()):
        if isinstance(module, _InstanceNorm):
            _forget(module)
        # A layer that is used twice stays one layer.
        for name, child in [*vars(module)["_modules"].items()]:
            if isinstance(child, _BatchNorm):
                setattr(module, name, norms[child])
    return norms[made] if isinstance(made, _BatchNorm) else made


@contextmanager
def seeded_torch(entropy: Entropy, device: torch.device) -> Iterator[None]:
    """Let torch draw from ``entropy``: dropout, initialisers, augmentation.

    torch's generators continue afterwards as if nothing had been drawn.
    """
    seed = np.empty(1, dtype=np.int64)
    entropy.fill(seed)
    if device.type not in ("cpu", "meta"):
        with torch.random.fork_rng(devices=[device], device_type=device.type):
            torch.manual_seed(int(seed[0]))
            yield
        return
    generator = torch.default_generator  # a tenth of the time that fork_rng takes
    before = generator.get_state()
    try:
        generator.manual_seed(int(seed[0]))
        yield
    finally:
        generator.set_state(before)


def _not_plain(model: nn.Module) -> Iterator[str]:
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        yield "it is compiled by torch.jit, whose copies cannot be trained; bring the module itself"
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            yield f"{name} has no shape yet; run one batch through the model first"


def _buffers(model: nn.Module) -> Iterator[str]:
    for name, module in model.named_modules():
        if isinstance(module, (_BatchNorm, _InstanceNorm)) and module.track_running_stats:
            yield (
                f"{name or 'it'} ({type(module).__name__}) keeps statistics of its users' data in "
                "buffers; use fl.fix(model)"
            )


def _parameters(model: nn.Module) -> Iterator[str]:
    if not trained(model):
        yield "no parameter requires a gradient; unfreeze what shall be trained"
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.dtype not in _TRAINED_IN:
            kind = str(parameter.dtype).removeprefix("torch.")
            yield f"{name} is {kind}, which loses small updates; use model.float(), or freeze it"
        elif not bool(torch.isfinite(parameter).all()):
            yield f"{name} has weights that are not finite; initialise it"


def _overlaps(model: nn.Module) -> Iterator[str]:
    """Yield parameters that are different objects in the same memory."""
    spans = [
        (parameter.data_ptr(), parameter.data_ptr() + parameter.nbytes, name)
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.numel() and parameter.device.type != "meta"
    ]
    for (_, end, first), (start, _, name) in pairwise(sorted(spans)):
        if start < end:
            yield f"{name} shares memory with {first}; tie them by assigning one Parameter to both"


def _group_norm(norm: _BatchNorm) -> nn.GroupNorm:
    channels = norm.num_features
    groups = math.gcd(32, channels)
    if isinstance(norm, nn.BatchNorm1d):
        groups = 1  # without pixels a group of one channel would be normalised to nothing
    elif groups == channels > 1:
        groups //= 2
    made = nn.GroupNorm(groups, channels, eps=norm.eps, affine=norm.affine)
    if norm.affine:
        made.weight, made.bias = norm.weight, norm.bias
    return made.train(norm.training)


def _forget(norm: _InstanceNorm) -> None:
    norm.track_running_stats = False
    norm.running_mean = norm.running_var = norm.num_batches_tracked = None


class Snapshot:
    """A module as it was: the training of one client leaves nothing in it for the next one."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._attributes = [(module, _copied(vars(module))) for module in model.modules()]
        self._tensors = [(name, t, t.detach().clone()) for name, t in _tensors(model).items()]

    def restore(self) -> None:
        """Undo what training did to buffers and attributes; weights are loaded anew anyway."""
        for module, kept in self._attributes:
            vars(module).clear()
            vars(module).update(_copied(kept))
        with torch.no_grad():
            for _, tensor, kept_value in self._tensors:
                tensor.copy_(kept_value)

    def written(self) -> bool:
        """Return whether training set any attribute of a module."""
        return any(_identities(vars(m)) != _identities(kept) for m, kept in self._attributes)

    def require_same(self, frozen: dict[str, Tensor]) -> None:
        """Raise `DomainError` if buffers, or the weights ``frozen`` before, have changed."""
        now = _tensors(self._model)
        for name, _, kept in self._tensors:
            if name not in now or not torch.equal(now[name], kept):
                raise DomainError(
                    f"training changed the buffer {name!r}: what it keeps of the data would "
                    "leave with the model; make it a parameter, or replace the layer "
                    "(fl.fix(model))"
                )
        named = dict(self._model.named_parameters())
        moved = [name for name, kept in frozen.items() if not torch.equal(named[name], kept)]
        if moved:
            raise DomainError(
                f"training changed the frozen weight {moved[0]!r}; train parameters that require "
                "a gradient alone"
            )

    def frozen(self) -> dict[str, Tensor]:
        """Return a copy of the weights that are not trained."""
        return {
            name: p.detach().clone()
            for name, p in self._model.named_parameters()
            if not p.requires_grad
        }


def _copied(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return a module's attributes; collections, such as that of its buffers, as copies."""
    return {
        name: copy.copy(value) if isinstance(value, dict | list | set) else value
        for name, value in attributes.items()
    }


def _identities(attributes: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {name: id(value) for name, value in attributes.items()}
    for name, value in attributes.items():
        if isinstance(value, dict):
            found[name] = {key: id(each) for key, each in value.items()}
        elif isinstance(value, list | set):
            found[name] = [*map(id, value)]
    found.pop("training", None)
    return found


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return buffers, and tensors that are mere attributes, by name."""
    found = dict(model.named_buffers())
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                found[f"{path}.{name}".removeprefix(".")] = value
    return found
