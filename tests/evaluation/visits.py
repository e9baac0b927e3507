"""A small data set of users who visit repeatedly."""

import numpy as np

from fairsync.data import Dataset, Facts
from sequences import make_ragged


def shop(n_users: int = 40, visits: int = 12, seed: int = 0) -> Dataset:
    """Return users with several visits at random times, and three items per visit."""
    rng = np.random.default_rng(seed)
    lists = [(rng.integers(0, 25, size=3 * visits) + 25 * (user % 2)).tolist() for user in range(n_users)]
    times = np.concatenate([np.repeat(np.sort(rng.choice(100_000, visits, replace=False)), 3) for _ in lists])
    facts = Facts("shop", n_users, 50, 5, 3 * visits * n_users, history=6)
    names = np.array([f"{item:02}" for item in range(50)])
    groups = np.array([f"shelf {item % 5}" for item in range(50)])
    return Dataset(facts, np.arange(n_users).astype(str), names, groups, make_ragged(lists), times)
