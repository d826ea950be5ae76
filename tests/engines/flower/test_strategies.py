import pytest
from flwr.serverapp import strategy as flower

from oracles.flower_fleet import Fleet
from skellam.engines.flower import mean_based
from skellam.engines.flower.strategies import adapt, require_mean_based
from skellam.errors import DomainError


def of(kind, **options):
    return kind(**{"fraction_evaluate": 0.0, **options})


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: of(flower.Krum), "compares the updates of single clients"),
        (lambda: of(flower.MultiKrum), "compares the updates of single clients"),
        (lambda: of(flower.Bulyan), "compares the updates of single clients"),
        (lambda: of(flower.FedMedian), "a median needs every client's update"),
        (lambda: of(flower.FedTrimmedAvg), "trimming needs every client's update"),
        (lambda: flower.QFedAvg(client_learning_rate=0.1), "weighs each client's update"),
        (lambda: of(flower.FedXgbBagging), "collects the trees"),
    ],
)
def test_strategies_that_need_single_updates_are_refused_with_the_reason(made, reason):
    with pytest.raises(DomainError, match=reason):
        require_mean_based(made())


class Mine(flower.FedAvg):
    """A strategy of a user's own."""


def test_an_unknown_strategy_must_be_declared():
    with pytest.raises(DomainError, match="declare it with @mean_based"):
        require_mean_based(of(Mine))


def test_a_declared_strategy_runs(tmp_path):
    @mean_based
    class Declared(flower.FedAvg):
        """Needs only the mean."""

    _, (report,) = Fleet(tmp_path).start(strategy=of(Declared))
    assert report.failure == ""


def test_a_declaration_is_not_inherited():
    @mean_based
    class Declared(flower.FedAvg):
        """Needs only the mean."""

    class Child(Declared):
        """Might need more."""

    with pytest.raises(DomainError, match="Child is not known"):
        require_mean_based(of(Child))


def test_no_declaration_makes_a_median_a_mean():
    @mean_based
    class Median(flower.FedMedian):
        """Is still a median."""

    with pytest.raises(DomainError, match="median"):
        require_mean_based(of(Median))


def test_the_strategy_does_not_sample_nor_evaluate():
    strategy = flower.FedAvg(fraction_train=0.5, fraction_evaluate=0.5)
    adapt(strategy, evaluates=False)
    assert (strategy.fraction_train, strategy.fraction_evaluate) == (1.0, 0.0)
    adapt(strategy, evaluates=True)
    assert (strategy.fraction_train, strategy.fraction_evaluate) == (1.0, 1.0)
