"""Data sets from plain lists, drawn by hypothesis or read from the real ones."""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import strategies as st

from fairsync.data.dataset import Dataset, Facts
from fairsync.ragged import Ragged

Visits = list[list[tuple[int, int]]]
"""For each user (time, item) in order of time."""


def make_ragged(lists: list[list[int]]) -> Ragged:
    items = np.array([item for one in lists for item in one], dtype=np.int32)
    return Ragged(items, np.cumsum([0] + [len(one) for one in lists]))


def make_dataset(visits: Visits, *, history: int = 4, has_clock: bool = True) -> Dataset:
    n_items = 1 + max((item for one in visits for _, item in one), default=0)
    rows = sum(len(one) for one in visits)
    return Dataset(
        Facts("drawn", len(visits), n_items, 1, rows, history=history, has_clock=has_clock),
        np.arange(len(visits)).astype(str),
        np.arange(n_items).astype(str),
        np.repeat("a", n_items),
        make_ragged([[item for _, item in one] for one in visits]),
        np.array([time for one in visits for time, _ in one], dtype=np.int64),
    )


def drawn_visits(*, least_users: int = 1, most_users: int = 6, latest: int = 30) -> st.SearchStrategy[Visits]:
    """Few items and few moments, so that both repeat; users may have nothing at all."""
    visit = st.tuples(st.integers(0, latest), st.integers(0, 5))
    user = st.lists(visit, max_size=12).map(lambda one: sorted(one, key=lambda pair: pair[0]))
    return st.lists(user, min_size=least_users, max_size=most_users)


def real_dataset(name: str, *, has_clock: bool) -> Dataset:
    """Return one of the real data sets, or skip the test where they are missing."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FAIRSYNC_DATA", default)) / name
    if not folder.exists():
        pytest.skip(f"{name} is not here: set FAIRSYNC_DATA to the folder of the real data sets.")
    rows = pl.read_parquet(folder / "interactions.parquet").sort("user", "timestamp", maintain_order=True)
    user_ids, users = np.unique(rows["user"].cast(pl.String).to_numpy().astype(str), return_inverse=True)
    item_ids, items = np.unique(rows["item"].cast(pl.String).to_numpy().astype(str), return_inverse=True)
    order = np.argsort(users, kind="stable")
    return Dataset(
        Facts(name, len(user_ids), len(item_ids), 1, len(rows), has_clock=has_clock),
        user_ids,
        item_ids,
        np.repeat("a", len(item_ids)),
        Ragged(items[order].astype(np.int32), np.searchsorted(users[order], np.arange(len(user_ids) + 1))),
        rows["timestamp"].to_numpy()[order].astype(np.int64),
    )
