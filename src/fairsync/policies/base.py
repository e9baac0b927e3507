"""What every policy is: floors and counts in, one price per group out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.catalog.groups import grow

Floats: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Terms:
    """What was promised: the part of a policy's world that does not change while requests arrive.

    Attributes
    ----------
    floors : numpy.ndarray
        (G,) minimum exposures of each group in the horizon.
    caps : numpy.ndarray
        (G,) the most exposures of each group that one request can hold: min(k, items of the group).
    k : int
        Candidates per request.
    horizon : int
        Requests over which the floors are spread.
    batch_size : int
        Requests between two price changes.
    rolls : bool
        Whether a new horizon begins by itself after so many requests. Otherwise the horizon is what is expected, and
        somebody else says when it is over.
    """

    floors: Counts
    caps: Counts
    k: int
    horizon: int
    batch_size: int
    auto_restart: bool = True


@dataclass(frozen=True)
class Sample:
    """The neighbourhood of the cut for some requests: what other prices would let in or push out.

    A row is one request: the best ``width`` entries of relevance minus price at the time. An entry is a group and
    a relevance; no item is named, so that a policy never sees one.

    Attributes
    ----------
    groups : numpy.ndarray
        (n, width) group code of each entry.
    relevance : numpy.ndarray
        (n, width) relevance of each entry, without the price, less that of the last candidate: differences within
        a request are all that matters, and they survive rounding where large common parts would not.
    prices : numpy.ndarray or None
        (G,) under which the latest rows were listed; None if those were the policy's prices of the moment. Rows that
        were long in flight tell nothing of what prices have let in since.
    """

    groups: npt.NDArray[np.intp]
    relevance: npt.NDArray[np.float32]
    prices: Floats | None = None

    def __len__(self) -> int:
        return len(self.groups)

    @classmethod
    def join(cls, parts: Sequence["Sample"], keep: int | None = None) -> "Sample":
        """Return the last ``keep`` requests (all, by default), oldest first.

        Where lists are not of one width, because a small catalog has changed, the tails of the longer ones go.
        """
        if len(parts) == 1 and keep is None:
            return parts[0]
        since = 0 if keep is None else -keep
        width = min(part.groups.shape[1] for part in parts)
        return cls(
            np.concatenate([part.groups[:, :width] for part in parts])[since:],
            np.concatenate([part.relevance[:, :width] for part in parts])[since:],
            parts[-1].prices,
        )


@dataclass(frozen=True)
class Feedback:
    """What happened since the last price change, and where the horizon stands now.

    Attributes
    ----------
    requests : int
        Requests served since the last price change.
    counts : numpy.ndarray
        (G,) exposures of each group in those requests.
    exposures : numpy.ndarray
        (G,) exposures of each group since the horizon began; all zero when a new one begins.
    remaining : int
        Requests left in the horizon.
    sample : Sample or None
        The neighbourhood of the cut for those requests, if the policy watches them.
    """

    requests: int
    counts: Counts
    exposures: Counts
    remaining: int
    sample: Sample | None = None


class Policy(Protocol):
    """Decides prices. A step is a pure function of a small state, so it runs the same anywhere.

    A policy never sees an item, a vector or an index, so every policy runs on every index. Its state is immutable
    and made of arrays and numbers, so that it can be saved, sent and thrown away.

    Attributes
    ----------
    name : str
        The name by which ``FairRetriever(policy=...)`` knows it.
    keeps_floors : bool
        Whether the retriever makes the floors true by its guard wherever prices alone would not.
    memory : int
        How many of the latest requests a sample needs to hold at most.
    """

    name: str
    keeps_floors: bool
    memory: int

    def start(self, terms: Terms) -> Any:
        """Return the state before the first request."""
        ...

    def lookahead(self, state: Any, k: int) -> int:
        """Return by how much the next lists should exceed k, for the policy, the guard and the report."""
        ...

    def watches(self, state: Any) -> bool:
        """Return whether the policy wants a sample of the next requests."""
        ...

    def prices(self, state: Any) -> Floats:
        """Return (G,) prices: what is subtracted from the relevance of a group's items; +inf masks a group."""
        ...

    def step(self, state: Any, terms: Terms, feedback: Feedback) -> Any:
        """Return the state after a batch of requests."""
        ...

    def resume(self, state: Any, terms: Terms) -> Any:
        """Return the state for other terms: other floors, and perhaps more groups, whose codes follow the old ones."""
        ...


class Memoryless:
    """A policy that remembers nothing: where the horizon stands decides the prices, so they *are* its state.

    The four baselines are of this kind. Each is one function, :meth:`decide`. Where no group was promised anything
    there is nothing to decide, and all prices are zero: the paper, whose floors are all positive, leaves that open.
    """

    keeps_floors = False
    memory = 0

    def decide(self, terms: Terms, exposures: Counts, served: int) -> Floats:
        """Return (G,) prices from the exposures of each group and the requests served since the horizon began."""
        raise NotImplementedError

    def lookahead(self, state: Floats, k: int) -> int:
        """Return 0: counts are all that it reads."""
        return 0

    def watches(self, state: Floats) -> bool:
        """Return no: a policy of counts alone."""
        return False

    def start(self, terms: Terms) -> Floats:
        """Return the prices of a horizon that has not begun."""
        return self._prices(terms, np.zeros_like(terms.floors), 0)

    def prices(self, state: Floats) -> Floats:
        """Return the state."""
        return state

    def step(self, state: Floats, terms: Terms, feedback: Feedback) -> Floats:
        """Return the prices of the present standing, whatever they were before."""
        return self._prices(terms, feedback.exposures, terms.horizon - feedback.remaining)

    def resume(self, state: Floats, terms: Terms) -> Floats:
        """Return the same prices until the next step, and none for new groups."""
        return grow(state, len(terms.floors))

    def _prices(self, terms: Terms, exposures: Counts, served: int) -> Floats:
        if not terms.floors.any():
            return np.zeros(len(terms.floors))
        return self.decide(terms, exposures, served)
