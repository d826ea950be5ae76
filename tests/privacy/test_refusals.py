"""What must not be decoded: too little noise, noise that would tell the size, other rounds."""

import pytest

from privacy import releases


def refuses(function, *arguments):
    try:
        function(*arguments)
    except releases.REFUSED:
        return True
    return False


@pytest.mark.parametrize("sampling", releases.SAMPLINGS)
@pytest.mark.parametrize(("dropout", "count"), [(0.0, 1), (0.0, 19), (0.1, 17)])
def test_a_sum_with_too_few_shares_of_noise_is_not_decoded(sampling, dropout, count):
    made = releases.plan(sampling, dropout=dropout)
    codec, messages = releases.messages(made, cohort=20, count=count)
    total = codec.add(messages)
    assert refuses(codec.decode, total)
    assert refuses(codec.wrap, total)


@pytest.mark.parametrize("sampling", releases.SAMPLINGS)
def test_nor_is_the_count_of_clips(sampling):
    try:
        made = releases.plan(sampling, quantile_noise=0.1)
    except releases.REFUSED:
        return
    codec, messages = releases.messages(made, cohort=20, count=19)
    assert refuses(releases.clip_count, codec, codec.add(messages))


@pytest.mark.parametrize("sampling", releases.AMPLIFIED)
def test_surplus_noise_is_removed_before_an_amplified_sum_is_decoded(sampling):
    made = releases.plan(sampling, dropout=0.1)
    codec, messages = releases.messages(made, cohort=20, count=20)
    assert refuses(codec.decode, codec.add(messages))


@pytest.mark.parametrize("sampling", releases.SAMPLINGS)
def test_a_whole_cohort_is_decoded_where_nobody_may_drop_out(sampling):
    codec, messages = releases.messages(releases.plan(sampling), cohort=20, count=20)
    assert len(codec.decode(codec.add(messages))) == 500


def test_bytes_of_another_round_are_refused():
    made = releases.plan()
    codec, (message, *_) = releases.messages(made, cohort=20, count=1)
    packed = codec.pack(message)
    assert codec.unpack(packed).values.tolist() == message.values.tolist()
    others = [
        releases.messages(made, cohort=20, count=1, number=1)[0],
        releases.messages(releases.plan(rounds=11), cohort=20, count=1)[0],
    ]
    for other in others:
        assert refuses(other.unpack, packed)


def test_messages_of_two_rounds_do_not_add_up():
    made = releases.plan()
    first, (message, *_) = releases.messages(made, cohort=20, count=1)
    _, (other, *_) = releases.messages(made, cohort=20, count=1, number=1)
    assert refuses(first.add, [message, other])
