"""What ``fairsync ledger show`` prints."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from rich.text import Text

from fairsync.coordination.shared_terms import SharedTerms
from fairsync.errors import InvalidInputError
from fairsync.ledger.labels import load_labels
from fairsync.promises import Promise
from fairsync.promises.selection import conditions_of, counted_text, is_selection
from fairsync.text import shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from fairsync.catalog.groups import Label
    from fairsync.ledger.reader import Contents, LedgerReader

_LONGEST_NAME = 100  # characters: a selection may list thousands of labels


@dataclass(frozen=True)
class ShownLedger:
    """The contents of a ledger, with the labels of its groups and the promises of a service.

    Attributes
    ----------
    address : str
        Where the ledger is, without a password.
    contents : Contents
        What it holds.
    labels : list
        What is counted, where it is known: labels of groups, and names of selections.
    promises : list of dict
        The promises of a service.
    sentences : list of str
        The same promises in words.
    """

    address: str
    contents: Contents
    labels: Sequence[Label]
    promises: list[dict[str, Any]]
    sentences: list[str]

    @classmethod
    def read(cls, reader: LedgerReader) -> ShownLedger:
        """Read a ledger; refuse one that does not exist."""
        contents = reader.contents()
        if contents.summary.format == 0:
            raise InvalidInputError(f"there is no ledger in {reader.database.address}: check the URL.")
        labels, promises, sentences = _read_promises(reader)
        return cls(reader.database.address, contents, labels, promises, sentences)

    @staticmethod
    def find_damage(reader: LedgerReader) -> list[str]:
        """Return whether the promises in a ledger can be read, as a sentence if not."""
        try:
            _read_promises(reader)
        except (LookupError, TypeError, ValueError) as error:
            return [f"{reader.database.address} is damaged: its promises cannot be read ({error!r}). Restore a backup."]
        return []

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        contents, summary, totals = self.contents, self.contents.summary, self.contents.totals
        horizon = None
        if totals is not None:
            impressions, n = totals.impressions, len(totals.exposures)
            counts = [
                {
                    "exposures": int(totals.exposures[code]),
                    "impressions": None if impressions is None else int(impressions[code]),
                }
                for code in range(n)
            ]
            horizon = {
                "began": _iso(totals.began),
                "requests": totals.requests,
                "relevance": totals.relevance,
                "cost": None if np.isnan(totals.cost) else totals.cost,
                "forced": totals.forced,
                "groups": [
                    {"group": self._group(code), **counts[code]} for code in range(n) if self._where(code) is None
                ],
                "selections": [
                    {"where": where, **counts[code]} for code in range(n) if (where := self._where(code)) is not None
                ],
            }
        return {
            "ledger": self.address,
            "format": summary.format,
            "groups": summary.groups - self._n_selections,
            "selections": self._n_selections,
            "horizons": summary.horizons,
            "requests": summary.requests,
            "horizon": horizon,
            "answers": contents.answers,
            "answer_bytes": contents.answer_bytes,
            "answers_since": _iso(contents.answers_since),
            "expired_answers": contents.expired_answers,
            "leases": contents.leases,
            "changed_items": contents.items,
            "audit": contents.audit,
            "promises": self.promises,
        }

    @property
    def _n_selections(self) -> int:
        return sum(map(is_selection, self.labels))

    def _group(self, code: int) -> Label | None:
        """Return the label of a column; None if it is not known."""
        return self.labels[code] if code < len(self.labels) else None

    def _where(self, code: int) -> dict[str, Any] | None:
        """Return the conditions of a column that counts a selection; None for one that counts a group."""
        label = self._group(code)
        return conditions_of(str(label)) if is_selection(label) else None

    def tables(self, most: int) -> list[RenderableType]:
        """Return tables for the terminal, with at most this many groups and selections."""
        contents, summary = self.contents, self.contents.summary
        facts = Table(box=None, show_header=False, pad_edge=False)
        answers = f"{contents.answers:,} saved, {contents.answer_bytes:,} bytes"
        if contents.answers_since is not None:
            answers += f", since {_iso(contents.answers_since)}"
        rows = {
            "ledger": self.address,
            "format": str(summary.format),
            "record": f"{summary.requests:,} requests in {summary.horizons:,} horizons,"
            f" {counted_text(self.labels, summary.groups)}",
            "answers": f"{answers}; {contents.expired_answers:,} expired",
            "leases": f"{contents.leases:,} open",
            "items": f"{contents.items:,} changed since the catalog's files were written",
            "audit": f"{contents.audit:,} entries",
            "promises": "\n".join(self.sentences) or "none",
        }
        for subject, words in rows.items():
            facts.add_row(f"[bold]{subject}[/]", Text(words))
        return [facts, *self._groups(most)]

    def _groups(self, most: int) -> list[RenderableType]:
        totals = self.contents.totals
        if totals is None:
            return []
        began = _iso(totals.began)
        title = f"The horizon under way: {totals.requests:,} requests{'' if began is None else f', since {began}'}"
        table = Table(title=title, title_justify="left")
        kinds = "group or selection" if self._n_selections else "group"
        table.add_column(kinds, overflow="fold")
        # A truncated number would be misread, so numbers are never wrapped or cut.
        table.add_column("exposures", justify="right", no_wrap=True)
        if totals.impressions is not None:
            table.add_column("impressions", justify="right", no_wrap=True)
        for code in np.argsort(-totals.exposures, kind="stable")[:most].tolist():
            counts = [totals.exposures[code]] + ([] if totals.impressions is None else [totals.impressions[code]])
            table.add_row(Text(shortened(self._name(code), _LONGEST_NAME)), *(f"{count:,}" for count in counts))
        rest = len(totals.exposures) - most
        more = "more" if self._n_selections else "more groups"
        return [table, *([f"and {rest:,} {more}: --groups {len(totals.exposures)}"] if rest > 0 else [])]

    def _name(self, code: int) -> str:
        where, label = self._where(code), self._group(code)
        if where is not None:
            return Promise(where, at_least=0).name
        return f"number {code}" if label is None else str(label)


def _read_promises(reader: LedgerReader) -> tuple[list[Label], list[dict[str, Any]], list[str]]:
    """Return the labels of the columns, and the promises of a service as values and in words."""
    shared = SharedTerms.saved_in(reader)
    labels = (load_labels(reader) or []) if shared is None else shared.groups.labels
    if importlib.util.find_spec("msgspec") is None:  # without the packages of the service
        return labels, [], []
    from fairsync.service.promises.saved_state import SavedState

    state = SavedState.load(reader)
    if state is None:
        return labels, [], []
    promises = [{"id": name, **promise.to_dict()} for name, promise in state.promises.items()]
    return max(labels, list(state.labels), key=len), promises, [str(promise) for promise in state.promises.values()]


def _iso(seconds: float | None) -> str | None:
    """Return a time since 1970 as text; None for 0, which means that there is none."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds") if seconds else None
