"""What requests exclude, as rows of a catalog: beside the plainest lookup."""

import numpy as np
import pytest

import fairsync as fs
from fairsync.eligibility.catalog_rules import CatalogRules


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("longest", [3, 64, 65, 400])
def test_ids_become_rows_as_in_the_plainest_lookup(words: bool, n: int, longest: int) -> None:
    rng = np.random.default_rng(longest + n)
    numbers = rng.permutation(500)
    ids = [f"item {number}" for number in numbers] if words else numbers.tolist()
    catalog = fs.Catalog(np.eye(300), ["a"] * 300, ids=ids[:300])  # the other ids are unknown
    row_of = {one: row for row, one in enumerate(ids[:300])}
    for _ in range(20):
        exclude = [[ids[at] for at in rng.integers(500, size=rng.integers(longest + 1))] for _ in range(n)]
        rules = CatalogRules(exclude, None, catalog, n)
        eligible = rules.eligibility(0, n)
        expected = [sorted({row_of[one] for one in some if one in row_of}) for some in exclude]
        assert rules.unknown.tolist() == [sum(one not in row_of for one in some) for some in exclude]
        if not any(expected):
            assert eligible is None
            continue
        assert eligible is not None
        ends = eligible.offsets.tolist()
        assert [eligible.excluded[ends[i] : ends[i + 1]].tolist() for i in range(n)] == expected


def test_a_short_list_of_ids_that_are_no_words_is_refused() -> None:
    catalog = fs.Catalog(np.eye(2), ["a", "b"], ids=["x", "y"])
    for exclude in ([["x", 1]], [[1]], [[None]]):
        with pytest.raises(fs.InvalidInputError, match=r"convert them|excluded ids"):
            CatalogRules(exclude, None, catalog, 1)
