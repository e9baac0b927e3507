"""A small world that models can learn: items come in clusters, and a user takes from two of them."""

import numpy as np

from fairsync.data.dataset import Dataset, Facts
from sequences import make_ragged

CLUSTERS, SIZE = 8, 12


def tasteful(n_users: int = 400, seed: int = 0, history: int = 6) -> Dataset:
    """Return users who took 8 to 14 items of two clusters, now of one and now of the other."""
    rng = np.random.default_rng(seed)
    lists = []
    for _ in range(n_users):
        tastes = rng.choice(CLUSTERS, 2, replace=False)
        length = rng.integers(8, 15)
        lists.append((rng.choice(tastes, length) * SIZE + rng.integers(SIZE, size=length)).tolist())
    sequences, n_items = make_ragged(lists), CLUSTERS * SIZE
    return Dataset(
        Facts("tastes", n_users, n_items, CLUSTERS, len(sequences.items), history=history),
        np.char.add("user-", np.arange(n_users).astype(str)),
        np.char.add("item-", np.arange(n_items).astype(str)),
        np.char.add("cluster-", (np.arange(n_items) // SIZE).astype(str)),
        sequences,
        np.arange(len(sequences.items)),
    )
