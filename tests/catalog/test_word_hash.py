"""Hashes of words: the same word has the same hash in any company, and other words have another."""

import numpy as np
import pytest

from fairsync.catalog.word_hash import hash_few_words, hash_numbers, hash_words

KEY = np.uint64(0x9E3779B97F4A7C15)


def _words(seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    letters = list("abcdefgh01234567äß中🙂")
    lengths = [*range(40), *rng.integers(40, size=200).tolist(), 255, 256, 257, 300, 5_000]
    return ["".join(rng.choice(letters, size=length)) for length in lengths]


@pytest.mark.parametrize("seed", range(3))
def test_a_word_has_the_same_hash_alone_and_in_any_list(seed: int) -> None:
    words = _words(seed)
    alone = [int(hash_words([[word]], KEY)[0]) for word in words]
    assert hash_words([words], KEY).tolist() == alone
    assert hash_words([words[:7], [], words[7:8], words[8:]], KEY).tolist() == alone
    assert hash_few_words(words, int(KEY)) == alone
    assert [hash_few_words([word], int(KEY)) for word in words] == [[one] for one in alone]
    assert len(set(alone)) == len(set(words))


def test_words_of_one_length_have_the_hashes_that_they_have_among_others() -> None:
    for width in (1, 7, 8, 9, 16, 17, 36):
        words = [f"{number:0{width}d}"[-width:] for number in range(50)]
        mixed = hash_words([[*words, "x" * (width + 3)]], KEY)[:-1]
        assert hash_words([words], KEY).tolist() == mixed.tolist()


def test_many_words_are_hashed_in_blocks() -> None:
    words = [str(number) for number in range(150_000)]
    hashes = hash_words([words[:1000], words[1000:140_000], words[140_000:]], KEY)
    assert len(np.unique(hashes)) == len(words)
    assert hashes[[0, 999, 1000, 149_999]].tolist() == hash_words([["0", "999", "1000", "149999"]], KEY).tolist()


def test_words_with_control_characters_equal_no_id() -> None:
    strange = ["", "\0", "a\0", "\0a", "a\0b", "\ud800"]
    ids = ["", "a", "b", "ab"]
    found = hash_words([strange, ids], KEY)
    assert not np.isin(found[1:6], found[6:]).any()
    assert found[0] == found[6]
    assert hash_few_words([*strange, *ids], int(KEY)) == found.tolist()


def test_what_is_no_word_raises() -> None:
    with pytest.raises(TypeError):
        hash_words([["a", 7]], KEY)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        hash_few_words(["a", 7], int(KEY))  # type: ignore[list-item]
    assert len(hash_words([], KEY)) == len(hash_few_words([], int(KEY))) == 0


def test_numbers_have_distinct_hashes() -> None:
    numbers = np.array([0, 1, -1, 2**62, -(2**63), 7])
    assert len(np.unique(hash_numbers(numbers, KEY))) == len(numbers)
