"""The interface of a search engine: what it can do, and how it is asked. It knows ids and labels, but no rows."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from fairsync.catalog.conditions import Condition
from fairsync.catalog.groups import Label
from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.search.engines.item_schema import ItemSchema

Floats = npt.NDArray[np.float32]
Value = TypeVar("Value")


@dataclass(frozen=True)
class Abilities:
    """What an engine can do by itself. `EngineIndex` does the rest.

    Attributes
    ----------
    prices : str
        ``"bias"``: it ranks all items by score plus bonus. ``"formula"``: it fetches items by score, and ranks these by
        score plus bonus. ``"none"``: it knows no bonus; prices are subtracted from what it returns.
    most_labels : int
        The most labels that can have a bonus of their own in one query.
    exact : bool
        Whether no better item is ever left out: no approximate index is used.
    most_results : int
        The most items that one query may ask for.
    combined_prices : bool
        Whether a bonus may depend on the labels of several attributes.
    """

    prices: Literal["bias", "formula", "none"]
    most_labels: int
    exact: bool
    most_results: int
    combined_prices: bool = False


@dataclass(frozen=True)
class Restricted:
    """The items that one request may get: those that meet all conditions and are not excluded."""

    conditions: tuple[Condition, ...] = ()
    excluded: Sequence[Label] = ()


@dataclass(frozen=True)
class Bonus:
    """What is added to the score of an item, by the label that it has in one attribute, or by those in several.

    Attributes
    ----------
    attributes : tuple of str
        Attributes with one label per item: one, unless the engine combines them (`Abilities.combined_prices`).
    by_label : dict
        The bonus of every label, or of every tuple of labels if there are several attributes; -inf to leave its items
        out.
    """

    attributes: tuple[str, ...]
    by_label: Mapping[Any, float]

    @property
    def highest(self) -> float:
        """The highest bonus."""
        return max(self.by_label.values())


@dataclass(frozen=True)
class EngineQuery:
    """One search for several vectors.

    Attributes
    ----------
    vectors : numpy.ndarray
        (n, d) float32.
    count : int
        The number of items to return for each vector.
    depth : int
        For an engine whose formula ranks what was fetched by score: the number of items to fetch.
    bonus : Bonus or None
        Added to scores before items are ranked, if the engine can.
    restricted : sequence of Restricted or None
        The items that may be returned for each vector; None for all.
    with_items : bool
        Whether rankings hold the items, with vectors and attributes.
    """

    vectors: Floats
    count: int
    depth: int
    bonus: Bonus | None = None
    restricted: Sequence[Restricted] | None = None
    with_items: bool = False


@dataclass(frozen=True)
class Ranking:
    """What an engine found for one vector, best first.

    Attributes
    ----------
    ids : list
        The ids of the items.
    scores : list of float
        Their scores, with the bonus if one was given.
    beyond : float
        The highest score, with the bonus, that any other item may have; -inf if there is no other.
    items : StoredItems or None
        The items in any order, if they were asked for.
    """

    ids: Sequence[Label]
    scores: Sequence[float]
    beyond: float
    items: "StoredItems | None" = None


@dataclass(frozen=True)
class StoredItems:
    """Some items as an engine stores them.

    Attributes
    ----------
    ids : list
        The ids.
    vectors : numpy.ndarray
        (n, d) float32.
    attributes : dict
        For each attribute the value of every item: a label, a list of labels, or a number.
    """

    ids: Sequence[Label]
    vectors: Floats
    attributes: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def joined(cls, parts: "Sequence[StoredItems]") -> "StoredItems":
        """Return the items of all parts, at least one, one after another."""
        filled = [one for one in parts if len(one)] or [parts[0]]
        names = [*filled[0].attributes]
        return cls(
            [name for one in filled for name in one.ids],
            np.concatenate([one.vectors for one in filled]),
            {name: [value for one in filled for value in one.attributes[name]] for name in names},
        )


class Engine(Protocol):
    """A search engine that holds items: an id, a vector and attributes each, ranked by the inner product.

    It evaluates conditions on attributes, and excluded ids. Calls may be made at the same time. A call that the engine
    does not answer raises `BackendUnavailableError`.
    """

    @property
    def abilities(self) -> Abilities:
        """What the engine can do."""
        ...

    @property
    def place(self) -> str:
        """Where the items are, for messages: the engine, its address, and the table or collection."""
        ...

    def exists(self) -> bool:
        """Return whether the table or collection is there."""
        ...

    def schema(self, attributes: Sequence[str]) -> ItemSchema:
        """Return the form of the items that are there, with the types of these attributes; raise if one is missing."""
        ...

    def prepare(self, schema: ItemSchema, *, create: bool, writes: bool) -> None:
        """Check that items of this form can be stored and found, before anything else is asked.

        Parameters
        ----------
        schema
            The form of the items.
        create
            Whether to make the table or collection if there is none.
        writes
            Whether items will be written to it.
        """
        ...

    def finish(self, *, create: bool) -> None:
        """Make what searches need when all items are written, such as an index, or check that it is there."""
        ...

    def search(self, query: EngineQuery) -> list[Ranking]:
        """Return what is found for each vector."""
        ...

    def items(self) -> Iterator[StoredItems]:
        """Yield all items, in batches."""
        ...

    def fetch(self, ids: Sequence[Label]) -> StoredItems:
        """Return those of the items that exist, in any order."""
        ...

    def count(self, attributes: Sequence[str] = (), conditions: Sequence[Condition] = ()) -> dict[tuple[Any, ...], int]:
        """Return the number of items with each combination of values of some attributes; of all under () by default.

        Only items that meet the conditions are counted. A list of labels is a sorted tuple. Items without a value have
        None.
        """
        ...

    def change(self, items: StoredItems, removed: Sequence[Label]) -> None:
        """Add items, or replace those with the same id, and remove items. Repeating the call changes nothing.

        Where the engine has transactions, searches see all of it or nothing.
        """
        ...

    def beside(self) -> "Engine | None":
        """Return an engine for a new table or collection that can take the name of this one by `switch`.

        None if the name cannot be switched.
        """
        ...

    def switch(self) -> None:
        """Give the name to what was written to this engine, at one moment; see `beside`.

        An engine searches what the name stood for when it was opened, so that requests see all of the old items or all
        of the new ones. The old items stay until the next switch.
        """
        ...


def check_settings(index: str, *, timeout: float, name: str, ef_search: int = 1, most_ef_search: int = 1) -> None:
    """Raise if settings that engines have in common have no meaning, before anything is asked.

    Parameters
    ----------
    index
        ``"exact"`` or ``"hnsw"``.
    timeout
        Seconds that a call may take.
    name
        The name of the table or collection.
    ef_search, most_ef_search
        The size of the candidate list of HNSW, and the largest that the engine takes.
    """
    if index not in ("exact", "hnsw"):
        raise InvalidInputError(f"index must be 'exact' or 'hnsw', got {index!r}.")
    if not timeout > 0:
        raise InvalidInputError(f"timeout must be a positive number of seconds, got {timeout}.")
    if not name:
        raise InvalidInputError("table or collection must be a name.")
    if not 1 <= ef_search <= most_ef_search:
        raise InvalidInputError(f"ef_search must be from 1 to {most_ef_search:,}, got {ef_search}.")


def in_parts(values: Sequence[Value], size: int) -> Iterator[Sequence[Value]]:
    """Yield values in parts that can be sent at once.

    Examples
    --------
    >>> list(in_parts([1, 2, 3], 2))
    [[1, 2], [3]]
    """
    for start in range(0, len(values), size):
        yield values[start : start + size]


def plain_value(value: Any) -> Any:
    """Return a value of an item as it is compared and counted: a list of labels as a sorted tuple.

    Examples
    --------
    >>> plain_value("toys"), plain_value(["b", "a"])
    ('toys', ('a', 'b'))
    """
    return tuple(sorted(value)) if isinstance(value, list) else value


def plain_values(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the values of an item as they are counted; see `Engine.count`."""
    return tuple(map(plain_value, values))


def ask_engine(engine: Engine, query: EngineQuery) -> list[Ranking]:
    """Search by an engine that fitted when it was opened.

    If it refuses the query now, a column or a collection was changed under way. That is not the fault of the caller,
    and may be repaired: it is raised as `BackendUnavailableError`.
    """
    try:
        return engine.search(query)
    except InvalidInputError as error:
        raise BackendUnavailableError(f"{engine.place} does not fit any more: {error}") from error


def edge(scores: Sequence[float], count: int, exact: bool) -> float:
    """Return the highest score that an item behind a ranking may have.

    If fewer items were found than asked for, an exact engine has no more. An approximate one may have missed some, and
    how good these are is not known.

    Examples
    --------
    >>> edge([0.5, 0.25], 2, True), edge([0.5], 2, True), edge([0.5], 2, False)
    (0.25, -inf, inf)
    """
    if len(scores) >= count:
        return scores[-1]
    return -math.inf if exact else math.inf
