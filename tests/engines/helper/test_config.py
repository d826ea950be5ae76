import pytest

from oracles.helper_fleet import HelperFleet
from skellam import SystemEntropy
from skellam.engines.helper import HelperConfig, HelperLimits
from skellam.engines.helper.config import write_new
from skellam.errors import DataError, DomainError


@pytest.fixture
def fleet(tmp_path):
    return HelperFleet(tmp_path)


def test_a_new_helper_has_a_key_of_its_own_and_a_file_that_can_be_read(fleet):
    config = fleet.config
    assert config.limits == HelperLimits(
        total_epsilon=100.0, delta=1e-6, min_cohort=2, max_participations=50
    )
    assert config.setting.leader == fleet.setting.identity.public
    assert config.setting.identity.public == fleet.setting.helper
    assert set(config.setting.roster.keys) == {10, 11, 12, 13}
    assert config.tls is not None
    assert fleet.toml.stat().st_mode & 0o077 == 0
    assert HelperConfig.load(fleet.toml.parent).state == config.state


def test_a_helper_is_made_once(fleet):
    with pytest.raises(DataError, match="made once"):
        write_new(
            fleet.toml.parent,
            entropy=SystemEntropy(),
            epsilon=1,
            delta=1e-6,
            min_cohort=2,
            participations=1,
        )


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("total_epsilon", "epsilon", r"\[limits\] with total_epsilon"),
        ('roster = "roster.json"', "", "must name identity, leader, roster, state"),
        ("certificate = ", "chain = ", "must name"),
        ("min_cohort = 2", "min_cohort = 1", "min_cohort must"),
        ("min_cohort = 2", "min_cohort = ", "cannot be read"),
        ("helper_noise_alone = false", "helper_noise_alone = 1", "true or false"),
        ('leader = "leader.key.pub"', 'leader = "helper.key.pub"', "must not be one party"),
        ('leader = "leader.key.pub"', 'leader = "helper.key"', "cannot be read|is no"),
    ],
)
def test_a_file_that_is_not_right_says_what_is_wrong(fleet, old, new, text):
    content = fleet.toml.read_text()
    assert old in content
    fleet.toml.write_text(content.replace(old, new))
    with pytest.raises((DataError, DomainError), match=text):
        HelperConfig.load(fleet.toml)


def test_limits_that_cannot_be_made_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(DomainError, match="min_cohort"):
        write_new(
            tmp_path / "helper",
            entropy=SystemEntropy(),
            epsilon=1,
            delta=1e-6,
            min_cohort=1,
            participations=1,
        )
    assert not (tmp_path / "helper").exists()
