"""Explanations: why each candidate of a request is there, and why an item is not."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from fairsync.errors import FairSyncError
from fairsync.text import plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import Console, ConsoleOptions, RenderableType

    from fairsync.catalog.groups import Label

Absence: TypeAlias = Literal["excluded", "condition", "price", "forced", "relevance", "missed"]
"""Why an item is not a candidate."""
FIXED_LIST = "fixed list"
"""The reason of a candidate that is there because the answer begins with a given list of items."""
# From this width of a terminal on, a table has all columns.
_WIDE = 110


class ExplainedCandidate(NamedTuple):
    """A candidate, and why it is there.

    Attributes
    ----------
    id, group
        The item and the label of its group.
    relevance : float
        Its relevance, without prices.
    prices : dict
        The price of each promise that bears on it, as it was applied: a subsidy is negative, and 0 where the floor
        needs no further exposure. Infinite where its group is masked.
    plain_rank : int or None
        Its rank by relevance alone, from 1, among the items that are eligible for the request. None if it is
        beyond the depth to which the index was asked (`Explanation.depth`).
    reason : str
        ``"relevance"`` if it would be there without prices too; ``"promise: toys ≥ 500"`` if its promise's price
        brought it in; ``"forced: toys ≥ 500"`` if the guard filled the slot; ``"price"`` if prices of other groups did;
        ``"fixed list"`` if the request is cold and the item is in the list that is given for such requests.
    displaced
        Id of the item that would be there in its place without prices; None where there is none.
    """

    id: Label
    group: Label
    relevance: float
    prices: Mapping[str, float]
    plain_rank: int | None
    reason: str
    displaced: Label | None = None

    @property
    def price(self) -> float:
        """The sum of its prices."""
        return sum(self.prices.values())

    @property
    def score(self) -> float:
        """Relevance minus price, which decides what is retrieved."""
        return self.relevance - self.price


@dataclass(frozen=True)
class WhyNot:
    """Why an item is not among the candidates of a request.

    Attributes
    ----------
    id, group
        The item and the label of its group.
    reason : str
        ``"excluded"``: the request excluded it. ``"condition"``: it does not meet the request's condition. ``"price"``:
        it would be there without prices, its group is masked, or a limit per list is used up; then ``price`` is
        infinite. ``"forced"``: a forced slot took its place.
        ``"relevance"``: it is below the cut. ``"missed"``: it is above the cut, and the index, which is approximate or
        was partly out of reach, did not find it.
    relevance, price : float
        Its relevance, and the price that applies to it.
    cut : float or None
        The score, relevance minus price, that an item needed to get a slot; None if no slot was open to prices.
    below : float or None
        How far its score is below the cut. 0 is a tie that ids decide. None if there is no cut.

    Examples
    --------
    >>> print(WhyNot("x7", "books", "relevance", 0.25, 0.0, 0.5, 0.25))
    'x7' is not there: its score 0.25 is 0.25 below the cut at 0.5.
    """

    id: Label
    group: Label
    reason: Absence
    relevance: float
    price: float
    cut: float | None
    below: float | None

    @property
    def score(self) -> float:
        """Relevance minus price."""
        return self.relevance - self.price

    def __str__(self) -> str:
        far = self._distance()
        words = {
            "excluded": "the request excluded it",
            "condition": "it does not meet the condition of the request",
            "price": far if self.price == math.inf else f"it would be there without prices; {far}",
            "forced": f"a forced slot took its place; {far}",
            "relevance": far,
            "missed": f"the index did not find it; {far}",
        }
        return f"{self.id!r} is not there: {words[self.reason]}."

    def _distance(self) -> str:
        if self.price == math.inf:
            return "its group is masked, or a limit per list is used up"
        if self.cut is None or self.below is None:
            return "no slot was open to prices"
        if self.below == 0:
            return f"its score {self.score:.4g} is at the cut, a tie that ids decide"
        side = "below" if self.below > 0 else "above"
        return f"its score {self.score:.4g} is {abs(self.below):.4g} {side} the cut at {self.cut:.4g}"

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as values for JSON; an infinite price is None."""
        document = {**vars(self), "message": str(self)}
        return {key: None if value in (math.inf, -math.inf) else value for key, value in document.items()}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> WhyNot:
        """Return what `to_dict` has written."""
        values = {name: document[name] for name in ("id", "group", "reason", "relevance", "price", "cut", "below")}
        if values["price"] is None:
            values["price"] = math.inf
            values["below"] = None if values["cut"] is None else math.inf
        return cls(**values)


@dataclass(frozen=True)
class Explanation:
    """Why the candidates of one request are there. ``print`` shows it as a table.

    Attributes
    ----------
    candidates : tuple of ExplainedCandidate
        In the order of the answer: best relevance first, after the items of a fixed list, in its order.
    cut : float or None
        The score, relevance minus price, that an item needed to get a slot; None if no slot was open to prices, or all
        eligible items are candidates.
    depth : int or None
        The number of items by relevance that the index was asked for; ranks beyond it are unknown. None if every rank
        is known.
    answer_why_not : callable or None
        Answers `why_not`; None in an explanation that was received or loaded.

    Examples
    --------
    >>> toys = ExplainedCandidate("t1", "toys", 0.5, {"toys ≥ 500": -0.25}, 7, "promise: toys ≥ 500", "b2")
    >>> books = ExplainedCandidate("b1", "books", 0.75, {}, 1, "relevance")
    >>> print(Explanation((books, toys), cut=0.75, depth=None))
    id   group   relevance     price   score   rank without prices   why                   displaced
    ────────────────────────────────────────────────────────────────────────────────────────────────
    b1   books      0.7500         0    0.75                     1   relevance             –
    t1   toys       0.5000   −0.2500    0.75                     7   promise: toys ≥ 500   b2
    <BLANKLINE>
    cut at 0.75 · 1 by relevance · 1 by promises
    """

    candidates: tuple[ExplainedCandidate, ...]
    cut: float | None
    depth: int | None
    answer_why_not: Callable[[Label], WhyNot] | None = field(default=None, repr=False, compare=False)

    def why_not(self, item_id: Label) -> WhyNot:
        """Return why an item is not among the candidates.

        It is computed from the request and the catalog that was searched. An explanation that was received from a
        service or loaded has neither: ask `Client.why_not` there.
        """
        if self.answer_why_not is None:
            raise FairSyncError(
                "This explanation was received or loaded, without the items: ask the service, with"
                " client.why_not(request_id, item_id)."
            )
        return self.answer_why_not(item_id)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as values for JSON; `from_dict` reads them. An infinite price is None."""
        return {
            "candidates": [{**one._asdict(), "prices": _finite(one.prices)} for one in self.candidates],
            "cut": self.cut,
            "depth": self.depth,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Explanation:
        """Return the explanation that `to_dict` has written."""
        candidates = []
        for one in document["candidates"]:
            prices = {name: math.inf if price is None else price for name, price in one["prices"].items()}
            candidates.append(ExplainedCandidate(**{**one, "prices": prices}))
        return cls(tuple(candidates), document["cut"], document["depth"])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich import box  # here, because it takes long to import
        from rich.table import Table
        from rich.text import Text

        is_narrow = options.max_width < _WIDE
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column("id", overflow="ellipsis", max_width=24)
        table.add_column("group", overflow="ellipsis", max_width=12 if is_narrow else 24)
        # The score is relevance minus price, which a reader of a narrow table can subtract.
        numbers = ("relevance", "price") if is_narrow else ("relevance", "price", "score")
        for name in (*numbers, "plain rank" if is_narrow else "rank without prices"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("why", overflow="ellipsis")
        table.add_column("displaced", overflow="ellipsis", max_width=24)
        for one in self.candidates:
            rank = f"> {self.depth:,}" if one.plain_rank is None else f"{one.plain_rank:,}"
            displaced = "–" if one.displaced is None else str(one.displaced)
            price = "masked" if one.price == math.inf else "0" if not one.price else f"{one.price:.4f}"
            cells = (f"{one.relevance:.4f}", price, f"{one.score:.4g}")[: len(numbers)]
            signed = [text.replace("-", "−") for text in cells]
            table.add_row(Text(str(one.id)), Text(str(one.group)), *signed, rank, Text(one.reason), Text(displaced))
        yield table
        yield Text("\n" + " · ".join(self._summary()))

    def _summary(self) -> list[str]:
        words = [] if self.cut is None else [f"cut at {self.cut:.4g}".replace("-", "−")]
        kinds = {"relevance": "by relevance", "promise": "by promises", "forced": "forced", "price": "by other prices"}
        kinds[FIXED_LIST] = "of a fixed list"
        for kind, text in kinds.items():
            if n := sum(one.reason.partition(":")[0] == kind for one in self.candidates):
                words.append(f"{n:,} {text}")
        return words

    def __str__(self) -> str:
        return plain_text(self, width=140).lstrip("\n")


@dataclass(frozen=True)
class StoredExplanation:
    """An explanation as a document: received from a service, or saved with the answer to a request.

    Attributes
    ----------
    document : dict
        The explanation as ``"explanation"``, and the trace of the request as ``"trace"``, if it was saved.
    """

    document: Mapping[str, Any]

    def explanation(self) -> Explanation:
        """Return the explanation."""
        return Explanation.from_dict(self.document["explanation"])

    def to_dict(self) -> Mapping[str, Any]:
        """Return the document."""
        return self.document


def _finite(prices: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if math.isinf(price) else price for name, price in prices.items()}
