"""A retriever in a folder: its catalog, promise, counts, and what its policy has learnt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.atomic_write import atomic_folder, check_path
from fairsync.catalog.files import open_catalog, save_catalog
from fairsync.cold_start.cold_start import MEAN
from fairsync.errors import InvalidInputError
from fairsync.ledger import Entry, Totals
from fairsync.loop.saved_prices import SavedPrices
from fairsync.policies import make_policy
from fairsync.policies.serialization import dump_value, load_value
from fairsync.promises import Promise

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.ledger import Ledger
    from fairsync.policies import Policy
    from fairsync.search import Index

_FORMAT = 1
_FACTS, _CATALOG, _PRICES, _PAST = "retriever.json", "catalog", "prices.npz", "past.npz"
_RECENT = "recent_users.npy"


@dataclass(frozen=True)
class SavedColdStart:
    """What is saved for cold requests.

    Attributes
    ----------
    fallback : str or list
        The fallback: "mean", a vector or ids.
    counts : bool
        Whether answers to cold requests count.
    recent : numpy.ndarray
        (n, d) the latest user vectors, oldest first.
    """

    fallback: Any
    counts: bool
    recent: NDArray[np.float64]


@dataclass(frozen=True)
class SavedRetriever:
    """What is saved of a retriever.

    Attributes
    ----------
    catalog : Catalog
        The items.
    policy, index : str or object
        Policy and index as they were given to the retriever. Of an object only the class is noted: the program that
        loads the retriever has to provide it.
    prices : SavedPrices
        The promise, the counts of the horizon, the policy's state and the price batch under way.
    past : tuple of Totals
        Totals of the past horizons, oldest first.
    cold_start : SavedColdStart
        The fallback for cold requests.
    promises : tuple of Promise or None
        The promises; None for floors of groups.
    if_infeasible, budget
        As they were given to the retriever.
    """

    catalog: Catalog
    policy: str | Policy
    index: str | Index | Callable[[Catalog], Index]
    prices: SavedPrices
    past: tuple[Totals, ...]
    cold_start: SavedColdStart
    promises: tuple[Promise, ...] | None = None
    if_infeasible: str = "refuse"
    budget: float | None = None

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write it to a folder, atomically. A retriever that was saved there before is replaced."""
        target = check_path(folder).resolve()
        if target.exists() and not (target.is_dir() and (not any(target.iterdir()) or (target / _FACTS).is_file())):
            raise InvalidInputError(f"{target} exists and is not a saved retriever: choose another folder.")
        given = {"policy": self.policy, "index": self.index}
        names = {what: one if isinstance(one, str) else None for what, one in given.items()}
        classes = {f"{what}_class": type(one).__name__ for what, one in given.items()}
        start = self.cold_start
        facts = {"format": _FORMAT, **names, **classes, "cold": start.fallback, "count_cold": start.counts}
        facts["budget"] = self.budget
        if self.promises is not None:
            facts["promises"] = [promise.to_dict() for promise in self.promises]
            facts["if_infeasible"] = self.if_infeasible
        prices, past = self.prices.dump(make_policy(self.policy)), dump_value(self.past, (Totals,))
        with atomic_folder(target) as work:
            save_catalog(self.catalog, work / _CATALOG)
            (work / _PRICES).write_bytes(prices)
            (work / _PAST).write_bytes(past)
            np.save(work / _RECENT, start.recent)
            (work / _FACTS).write_text(json.dumps(facts) + "\n", encoding="utf-8")

    @classmethod
    def read(
        cls,
        folder: str | os.PathLike[str],
        policy: str | Policy | None = None,
        index: str | Callable[[Catalog], Index] | None = None,
    ) -> SavedRetriever:
        """Read it from a folder.

        Parameters
        ----------
        folder
            The folder that `write` has written.
        policy, index
            Policy and index in place of those that were saved. They are needed if those were objects.
        """
        source = check_path(folder).resolve()
        try:
            facts = json.loads((source / _FACTS).read_text(encoding="utf-8"))
            prices, past = (source / _PRICES).read_bytes(), (source / _PAST).read_bytes()
            recent = np.load(source / _RECENT) if "cold" in facts else None  # earlier versions saved none
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"{source} holds no retriever ({error}): give a folder that retriever.save(folder) has written."
            ) from error
        if facts["format"] != _FORMAT:
            raise InvalidInputError(f"{source} is of format {facts['format']}, not {_FORMAT}: update FairSync.")
        policy = facts["policy"] if policy is None else policy
        if policy is None:
            raise InvalidInputError(
                f"{source} was saved with a policy object ({facts['policy_class']}): give one with the same settings,"
                " FairRetriever.load(folder, policy=...)."
            )
        index = facts["index"] if index is None else index
        if index is None:
            raise InvalidInputError(
                f"{source} was saved with an index object ({facts['index_class']}): give a function that builds it,"
                " FairRetriever.load(folder, index=lambda catalog: ...)."
            )
        catalog = open_catalog(source / _CATALOG)
        return cls(
            catalog,
            policy,
            index(catalog) if callable(index) and "promises" not in facts else index,
            SavedPrices.load(make_policy(policy), prices),
            load_value(past, (Totals,)),
            SavedColdStart(
                facts.get("cold", MEAN),
                facts.get("count_cold", True),
                np.empty((0, catalog.dim)) if recent is None else recent,
            ),
            tuple(Promise.from_dict(one) for one in facts["promises"]) if "promises" in facts else None,
            facts.get("if_infeasible", "refuse"),
            facts.get("budget"),
        )

    def copy_counts(self, ledger: Ledger) -> None:
        """Record the saved counts in an empty ledger; refuse one that holds others."""
        every, held = [*self.past, self.prices.totals], [*ledger.past(), ledger.totals()]
        if _counts(held) == _counts(every):
            return
        if any(_counts(held)):
            raise InvalidInputError(
                "The ledger holds other counts than the folder: give a new ledger, or continue from the ledger with"
                " FairRetriever(catalog, ..., ledger=ledger)."
            )
        ledger.record([_entry(one, opens_horizon=i > 0) for i, one in enumerate(every)])


def _counts(horizons: Sequence[Totals]) -> list[list[int]]:
    return [[one.requests, *one.exposures.tolist()] if one.requests else [] for one in horizons]


def _entry(totals: Totals, *, opens_horizon: bool) -> Entry:
    return Entry(
        totals.exposures,
        totals.requests,
        totals.relevance,
        totals.cost,
        totals.forced,
        opens_horizon or bool(totals.began),
        totals.began,
        totals.impressions,
    )
