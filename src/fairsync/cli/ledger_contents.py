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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from fairsync.catalog.groups import Label
    from fairsync.ledger.reader import Contents, LedgerReader


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
        Labels of the groups, where they are known.
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
            impressions = totals.impressions
            horizon = {
                "began": _iso(totals.began),
                "requests": totals.requests,
                "relevance": totals.relevance,
                "cost": None if np.isnan(totals.cost) else totals.cost,
                "forced": totals.forced,
                "groups": [
                    {
                        "group": self.labels[code] if code < len(self.labels) else None,
                        "exposures": int(exposures),
                        "impressions": None if impressions is None else int(impressions[code]),
                    }
                    for code, exposures in enumerate(totals.exposures)
                ],
            }
        return {
            "ledger": self.address,
            "format": summary.format,
            "groups": summary.groups,
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

    def tables(self, most: int) -> list[RenderableType]:
        """Return tables for the terminal, with at most this many groups."""
        contents, summary = self.contents, self.contents.summary
        facts = Table(box=None, show_header=False, pad_edge=False)
        answers = f"{contents.answers:,} saved, {contents.answer_bytes:,} bytes"
        if contents.answers_since is not None:
            answers += f", since {_iso(contents.answers_since)}"
        rows = {
            "ledger": self.address,
            "format": str(summary.format),
            "record": f"{summary.requests:,} requests in {summary.horizons:,} horizons, {summary.groups:,} groups",
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
        table.add_column("group", overflow="fold")
        # A truncated number would be misread, so numbers are never wrapped or cut.
        table.add_column("exposures", justify="right", no_wrap=True)
        if totals.impressions is not None:
            table.add_column("impressions", justify="right", no_wrap=True)
        for code in np.argsort(-totals.exposures, kind="stable")[:most].tolist():
            label = str(self.labels[code]) if code < len(self.labels) else f"number {code}"
            counts = [totals.exposures[code]] + ([] if totals.impressions is None else [totals.impressions[code]])
            table.add_row(Text(label), *(f"{count:,}" for count in counts))
        rest = len(totals.exposures) - most
        return [table, *([f"and {rest:,} more groups: --groups {len(totals.exposures)}"] if rest > 0 else [])]


def _read_promises(reader: LedgerReader) -> tuple[list[Label], list[dict[str, Any]], list[str]]:
    """Return the labels of the groups, and the promises of a service as values and in words."""
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
