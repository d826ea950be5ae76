import numpy as np
import pytest
import torch

from skellam.errors import DomainError, ShapeError
from skellam.federated.aggregation import adam, fedavg

UPDATES = [np.array([1.0, -2.0, 0.5], np.float32), np.array([0.5, 0.5, 0.5], np.float32)] * 3
START = np.array([1.0, 2.0, 3.0], dtype=np.float32)


def run(optimiser):
    state = optimiser.init(START)
    for update in UPDATES:
        state = optimiser.apply(state, update)
    return state


def torch_run(build):
    """The same updates as gradients of the opposite sign, through torch's own optimiser."""
    parameter = torch.nn.Parameter(torch.from_numpy(START.copy()))
    optimiser = build([parameter])
    for update in UPDATES:
        parameter.grad = torch.from_numpy(-update)
        optimiser.step()
    return parameter.detach().numpy()


def test_plain_averaging_adds_the_mean_update():
    state = fedavg().apply(fedavg().init(START), UPDATES[0])
    np.testing.assert_array_equal(state.model, START + UPDATES[0])
    assert state.step == 1


def test_momentum_is_torchs():
    expected = torch_run(lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9))
    np.testing.assert_allclose(
        run(fedavg(learning_rate=0.3, momentum=0.9)).model, expected, rtol=1e-5
    )


def test_adam_is_torchs():
    expected = torch_run(lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.9, 0.99), eps=1e-3))
    np.testing.assert_allclose(run(adam(learning_rate=0.1)).model, expected, rtol=1e-5)


@pytest.mark.parametrize("optimiser", [fedavg(momentum=0.9), adam(learning_rate=0.1, eps=1e-12)])
def test_a_rescaled_memory_is_that_of_rescaled_updates(optimiser):
    def after(scale):
        state = optimiser.init(START)
        for update in UPDATES:
            state = optimiser.apply(state, np.float32(scale) * update)
        return state

    for part, expected in zip(
        optimiser.rescaled(after(1), 0.25).moments, after(0.25).moments, strict=True
    ):
        np.testing.assert_allclose(part, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "optimiser", [fedavg(learning_rate=0.5, momentum=0.9), adam(learning_rate=0.1)]
)
def test_a_state_can_be_applied_to_twice_and_keeps_float32(optimiser):
    state = optimiser.init(START)
    first, second = (optimiser.apply(state, UPDATES[0]) for _ in range(2))
    np.testing.assert_array_equal(first.model, second.model)
    np.testing.assert_array_equal(state.model, START)
    assert first.model.dtype == np.float32
    assert all(part.dtype == np.float32 for part in first.moments)


def test_an_update_of_another_shape_or_type_is_refused():
    optimiser = fedavg()
    for wrong in (np.zeros(4, np.float32), np.zeros(3)):
        with pytest.raises(ShapeError):
            optimiser.apply(optimiser.init(START), wrong)


@pytest.mark.parametrize(
    "build",
    [
        lambda: fedavg(learning_rate=0),
        lambda: fedavg(momentum=-0.1),
        lambda: adam(learning_rate=float("nan")),
        lambda: adam(learning_rate=1, beta1=1.0),
        lambda: adam(learning_rate=1, beta2=1.5),
        lambda: adam(learning_rate=1, eps=0),
    ],
)
def test_bad_settings_are_refused(build):
    with pytest.raises(DomainError):
        build()
