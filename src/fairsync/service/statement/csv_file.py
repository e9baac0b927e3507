"""A statement as CSV: one line per window."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from fairsync.service.statement.local_time import local

if TYPE_CHECKING:
    from fairsync.service.schema.statement import Statement

_COLUMNS = (
    "attribute", "label", "promise", "promised", "zone", "start", "end", "floor", "delivered", "reached", "kept",
    "missing", "cap", "exceeding", "reason",
)  # fmt: skip
# What spreadsheets take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def statement_csv(statement: Statement) -> str:
    """Return the lines. Times are ISO 8601 with the offset of the window's time zone."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(_COLUMNS)
    for row in statement.rows:
        values = (
            statement.attribute, statement.label, row.promise, row.promised, row.zone, _iso(row.start, row.zone),
            _iso(row.end, row.zone), row.floor, row.delivered, _iso(row.reached, row.zone),
            "yes" if row.kept else "no", row.missing, row.cap, row.exceeding, row.reason,
        )  # fmt: skip
        writer.writerow([_text(value) for value in values])
    return out.getvalue()


def _iso(moment: object, zone: str) -> str:
    found = local(moment, zone)
    return "" if found is None else found.isoformat(timespec="seconds")


def _text(value: object) -> object:
    """Return a value that no spreadsheet runs as a formula: labels are the provider's words."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value
