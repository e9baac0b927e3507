"""A part of the requests of a call: answered together, under one lease."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.candidates import Candidates
from fairsync.explain.explained_batch import explain_requests
from fairsync.loop.serving import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.groups import Label
    from fairsync.cold_start.fixed_list import FixedList
    from fairsync.coordination.searched_items import SearchedItems
    from fairsync.loop.batch import Batch, ServedBatch
    from fairsync.search.eligibility import Eligibility


@dataclass(frozen=True)
class RequestPart:
    """Some of the requests of a call, which are answered together.

    Attributes
    ----------
    vectors : numpy.ndarray
        (n, interests, d) user vectors; those of cold requests are filled in.
    k : int
        Candidates per request.
    request_ids : list
        The id of each request, or None.
    evaluate : Callable or None
        Returns the items that each of them may get; None for all items.
    cold : numpy.ndarray or None
        (n,) which of them are cold; None if none is.
    fixed : FixedList or None
        The list that some of them begin with.
    explain : bool or dict
        Whether they are explained; texts of promises by label.
    """

    vectors: NDArray[np.floating[Any]]
    k: int
    request_ids: list[str | None]
    evaluate: Callable[[], Eligibility | None] | None
    cold: NDArray[np.bool_] | None
    fixed: FixedList | None
    explain: bool | Mapping[Label, str]

    def serve(self, batch: Batch, items: SearchedItems, opened: SearchedItems) -> ServedBatch:
        """Find the candidates.

        Parameters
        ----------
        batch
            The batch, for these items.
        items, opened
            The items, and what this batch sees of them; see `SearchedItems.opened`.
        """
        eligible, is_explained = None if self.evaluate is None else self.evaluate(), self.explain is not False
        eligible = items.within(eligible)
        served = serve(batch, opened.searched, opened.index, self.vectors, eligible, self.fixed, explain=is_explained)
        if served.trace is not None and isinstance(self.explain, Mapping):
            return replace(served, trace=replace(served.trace, names=self.explain))
        return served

    def candidates(self, opened: SearchedItems, served: ServedBatch) -> tuple[Candidates, dict[str, bytes]]:
        """Return the candidates that were found, and the answers to be saved, by request id."""
        rows, relevance = served.hits.rows, served.hits.relevance
        searched = np.full(len(rows), served.searched)
        list_first = None if self.fixed is None else self.fixed.places
        found = Candidates.of(
            opened.catalog, rows, relevance, searched, cold=self.cold, places=list_first, plain=served.plain
        )
        if served.trace is not None:
            names = [promise.name for promise in opened.promises or ()]
            found = replace(found, explained=tuple(explain_requests(served.trace, names)))
        return found, {name: found.dump(i) for i, name in enumerate(self.request_ids) if name is not None}


def with_saved(found: Candidates, saved: dict[str, Candidates], request_ids: Sequence[str | None]) -> Candidates:
    """Return the candidates with the saved answer of each request that has one."""
    return Candidates.join([saved.get(name or "", found.take(slice(i, i + 1))) for i, name in enumerate(request_ids)])
