"""Statements for providers, as files: HTML to read and print, CSV to compute with."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from fairsync.service.schema.statement import Statement, StatementRow

_COLUMNS = (
    "attribute", "label", "promise", "promised", "zone", "start", "end", "floor", "delivered", "reached", "kept",
    "missing", "cap", "exceeding", "reason",
)  # fmt: skip
# What spreadsheets take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_COUNTED = {
    "retrieved": "one item in one list of candidates",
    "impressions": "one item that was reported as shown",
}
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1c1e21; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } .dim { color: #5a6068; } .remark { color: #8a4b00; }
table { border-collapse: collapse; width: 100%; margin-top: 1.5rem; }
th, td { text-align: left; vertical-align: top; padding: 0.4rem 0.6rem; border-bottom: 1px solid #d8dce0; }
td.number, th.number { text-align: right; }
td.number, td.time { white-space: nowrap; font-variant-numeric: tabular-nums; }
.bounds { display: block; color: #5a6068; font-size: 0.93rem; }
tr.missed td { background: #fdf3ee; } .reason { display: block; color: #8a2f12; font-size: 0.93rem; }
@media (max-width: 45rem) {
  thead { display: none; } tr, td { display: block; } tr { padding: 0.6rem 0; border-bottom: 1px solid #d8dce0; }
  td, td.number { border: 0; padding: 0.1rem 0.6rem; text-align: left; }
  td::before { content: attr(data-name) ": "; color: #5a6068; }
}
@media print { body { margin: 0; max-width: none; } tr { break-inside: avoid; } }
"""


def statement_csv(statement: Statement) -> str:
    """Return a statement as CSV, one line per window. Times are ISO 8601 with the offset of the window's time zone."""
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
    found = _local(moment, zone)
    return "" if found is None else found.isoformat(timespec="seconds")


def _text(value: object) -> object:
    """Return a value that no spreadsheet runs as a formula: labels are the provider's words."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value


def statement_html(statement: Statement) -> str:
    """Return a statement as one HTML page, which needs nothing from elsewhere and can be printed."""
    rows = statement.rows
    kept = sum(row.kept for row in rows)
    missing = sum(row.missing for row in rows)
    title = f"Exposures of {escape(str(statement.label))}, {statement.month}"
    remarks = "".join(f'<p class="remark">{escape(one)}</p>' for one in statement.remarks)
    counted = _COUNTED.get(statement.count, statement.count)
    body = "".join(map(_row, rows))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>'
        f'<h1>{title}</h1><p class="dim">{escape(statement.attribute)}: {escape(str(statement.label))}.'
        f" Windows that ended in {statement.month}, as of {statement.made_at:%Y-%m-%d %H:%M %Z}."
        f" An exposure is {escape(counted)}.</p>{remarks}"
        f"<p><strong>{kept:,} of {len(rows):,} windows kept.</strong>"
        f"{f' {missing:,} exposures were missing in the others.' if missing else ''}</p>"
        '<table><thead><tr><th>From</th><th>Promised</th><th class="number">Delivered</th><th>Due by</th>'
        f"<th>Reached</th><th>Result</th></tr></thead><tbody>{body}</tbody></table></body></html>\n"
    )


def _row(row: StatementRow) -> str:
    wrong = f"{row.exceeding:,} above the limit" if row.exceeding else f"{row.missing:,} missing"
    result = "kept" if row.kept else f"missed: {wrong}"
    reason = f'<span class="reason">{escape(row.reason)}</span>' if row.reason else ""
    cells = [
        ("From", "time", _time(row.start, row.zone)),
        ("Promised", "", escape(row.promised)),
        ("Delivered", "number", f"{row.delivered:,}{_bounds(row)}"),
        ("Due by", "time", _time(row.end, row.zone)),
        ("Reached", "time", _time(row.reached, row.zone)),
        ("Result", "", f"{result}{reason}"),
    ]
    body = "".join(f'<td class="{kind}" data-name="{name}">{text}</td>' for name, kind, text in cells)
    return f"<tr{'' if row.kept else ' class=missed'}>{body}</tr>"


def _bounds(row: StatementRow) -> str:
    """Return the numbers of exposures that shares came to."""
    if "%" not in row.promised:
        return ""
    bounds = [f"{name} {value:,}" for name, value in (("at least", row.floor), ("at most", row.cap)) if value]
    return "".join(f'<span class="bounds">{one}</span>' for one in bounds)


def _time(moment: object, zone: str) -> str:
    found = _local(moment, zone)
    return "–" if found is None else f"{found:%Y-%m-%d %H:%M}"


def _local(moment: object, zone: str) -> datetime | None:
    """Return a moment by the clock of a time zone; None if there is none.

    Examples
    --------
    >>> from datetime import UTC
    >>> _local(datetime(2026, 11, 30, 23, tzinfo=UTC), "Europe/Berlin").isoformat()
    '2026-12-01T00:00:00+01:00'
    """
    return moment.astimezone(ZoneInfo(zone)) if isinstance(moment, datetime) else None
