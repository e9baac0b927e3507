"""Conditions of every kind, and what an index must find under them."""

from typing import Any

import numpy as np

from contract.test_eligibility import assert_plain
from contract.test_indexes import random_case
from fairsync.catalog import Catalog
from fairsync.search import Index
from fairsync.search.eligibility import Eligibility

REGIONS = ["DE", "AT", 'a "quote"', "back\\slash", "Köln", "it's"]


def described(seed: int, n: int = 400) -> Catalog:
    """Items with an attribute of every kind; labels hold what an expression has to escape."""
    rng, plain = np.random.default_rng(seed), random_case(seed)[0]
    return Catalog(
        plain.embeddings[:n],
        {
            "group": plain.group_of[:n].tolist(),
            "region": [REGIONS[code] for code in rng.integers(6, size=n)],
            "year": rng.integers(-5, 2030, size=n).tolist(),
            "in_stock": (rng.random(n) < 0.7).tolist(),
            "price": rng.choice([0.5, 1.0, 2.25, 1e300, -3.0], size=n).tolist(),
            "tags": [[f"t{code}" for code in np.flatnonzero(rng.random(3) < 0.4)] for _ in range(n)],
        },
    )


CONDITIONS: list[dict[str, Any]] = [
    {"region": "DE"},
    {"region": ['a "quote"', "back\\slash", "it's"]},
    {"region": {"not": ["Köln", "AT"]}},
    {"in_stock": True},
    {"in_stock": {"not": True}},
    {"year": {"at_least": 3.5, "at_most": 2000}},
    {"year": {"at_most": 1e30}, "price": {"at_least": 1.0}},
    {"price": [0.5, 2.25]},
    {"price": {"not": 1e300}},
    {"price": {"at_most": 0.5}, "in_stock": True, "region": {"not": "DE"}},
    {"group": [0, 3]},
    {"tags": ["t0", "t2"]},
    {"tags": {"not": "t1"}, "region": ["DE", "AT"]},
]


def assert_conditions_hold(index: Index, catalog: Catalog, seed: int) -> None:
    """Compare with the plainest search: one condition for all, one each, and lists of excluded items."""
    rng = np.random.default_rng(seed)
    users = rng.normal(size=(4, 1, catalog.dim))
    for prices in (None, np.linspace(-0.5, 0.5, catalog.n_groups)):
        for at, where in enumerate(CONDITIONS):
            others = [where, CONDITIONS[at - 1], None, where]
            for each in ([where] * 4, others):
                chosen = [None if one is None else catalog.select(one) for one in each]
                lengths = [0, 3, 60, 15] if at % 2 else [0] * 4
                excluded = [rng.permutation(len(catalog))[:length] for length in lengths]
                eligible = Eligibility.of(len(catalog), chosen, excluded)
                assert_plain(index, catalog, users, prices, 10, eligible)
