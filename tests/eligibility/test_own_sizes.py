"""The sizes of single requests, against a table of all requests by all groups."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.eligibility.eligible_items import make_eligibility
from fairsync.eligibility.own_sizes import OwnSizes


@given(seed=st.integers(0, 10**6), groups=st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_they_are_those_of_the_table(seed: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    n, requests = int(rng.integers(groups, 40)), int(rng.integers(1, 9))
    group_of = np.concatenate([np.arange(groups), rng.integers(groups, size=n - groups)])
    catalog = Catalog(rng.normal(size=(n, 2)), {"group": group_of, "number": rng.permutation(n)})
    limits = rng.integers(n, size=requests).tolist()
    where: list[Any] = [{"number": {"at_most": limit}} if rng.random() < 0.5 else None for limit in limits]
    exclude = [rng.integers(n, size=rng.integers(0, n)).tolist() for _ in range(requests)]
    eligible, _ = make_eligibility(exclude, where, catalog, requests)
    if eligible is None:
        return
    table = np.array([np.bincount(group_of[eligible.mask(i)], minlength=groups) for i in range(requests)])
    own = OwnSizes.of(eligible, catalog)
    limit = rng.integers(0, 6, size=groups)
    assert own.lacks(limit).tolist() == (table < limit).any(axis=1).tolist()
    assert own.shown(limit).tolist() == np.minimum(table, limit).sum(axis=1).tolist()
    assert own.sums(limit).tolist() == np.minimum(table, limit).sum(axis=0).tolist()
