import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skellam.errors import DomainError
from skellam.federated.data import Clients
from skellam.tasks.preparation import (
    CHARACTERS,
    PAD,
    Vocabulary,
    common_words,
    from_windows,
    next_characters,
    next_words,
)


def one_client(*pieces):
    return Clients(["me"], lambda _: pieces)


def test_the_papers_characters_and_marks_are_90_numbers():
    assert len(CHARACTERS.tokens) == 86
    assert CHARACTERS.size == 90
    assert CHARACTERS.encode("A\t") == [88, CHARACTERS.tokens.index("A") + 1, 87, 89]


def test_marks_follow_the_tokens_and_padding_comes_first():
    words = Vocabulary(("a", "b"))
    marks = (PAD, words.unknown, words.begin, words.end, words.size)
    assert marks == (0, 3, 4, 5, 6)
    assert words.encode(["b", "c", "a"]) == [4, 2, 3, 1, 5]


@pytest.mark.parametrize("tokens", [(), ("a", "a")])
def test_a_vocabulary_has_tokens_each_of_them_once(tokens):
    with pytest.raises(DomainError):
        Vocabulary(tokens)


def test_common_words_are_ranked_by_count_then_by_name():
    texts = [("b a a", "c"), ("c d",)]
    assert common_words(texts, 3).tokens == ("a", "c", "b")
    assert common_words(texts, 99).tokens == ("a", "c", "b", "d")


@given(text=st.text("ab ", max_size=30), length=st.integers(1, 9))
def test_windows_do_not_overlap_and_leave_out_nothing_but_lone_ends(text, length):
    examples = next_characters(one_client(text), length=length)["me"]
    firsts, rows = examples.inputs[:, :1], examples.targets
    numbers = [t for row in np.hstack([firsts, rows]).tolist() for t in row if t != PAD]
    whole = CHARACTERS.encode(text)
    lone = len(whole) % (length + 1) == 1
    assert numbers == (whole[:-1] if lone else whole)
    assert (examples.targets[:, 0] != PAD).all()
    assert examples.inputs.shape[1] == length


def test_sentences_are_cut_and_padded_to_the_length():
    words = Vocabulary(("a", "b"))
    examples = next_words(one_client("a b a b", "b"), words, length=3)["me"]
    assert examples.inputs.tolist() == [[4, 1, 2], [4, 2, 5]]
    assert examples.targets.tolist() == [[1, 2, 1], [2, 5, 0]]


def test_a_window_and_what_follows_it_are_shifted_by_one():
    examples = from_windows(["abc"], ["d"])
    a, b, c, d = (CHARACTERS.tokens.index(letter) + 1 for letter in "abcd")
    assert examples.inputs.tolist() == [[a, b, c]]
    assert examples.targets.tolist() == [[b, c, d]]
