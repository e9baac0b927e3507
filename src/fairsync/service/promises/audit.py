"""The audit of promises: who made, changed and ended which promise, and when."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from fairsync.ledger.audit import AuditRecord
from fairsync.service.schema.audit import AuditEntry, AuditView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.ledger.audit import AuditPage
    from fairsync.schedule import ScheduledPromise

SETTINGS = "settings"
"""Who made the promises of the settings, at the first start."""


def audit_changes(
    before: Mapping[str, ScheduledPromise],
    after: Mapping[str, ScheduledPromise],
    by: str,
    now: datetime,
    note: str = "",
) -> list[AuditRecord]:
    """Return the records of a change of promises.

    Parameters
    ----------
    before, after
        The promises by id.
    by
        Name of the token, `SETTINGS`, or empty if there are no tokens, and if no caller has asked for it.
    now
        The time.
    note
        Why it happened, if no caller has asked for it.

    Examples
    --------
    >>> from fairsync.schedule import ScheduledPromise, Window
    >>> made = {"a": ScheduledPromise.of_group("toys", 100, Window.day("UTC"))}
    >>> (one,) = audit_changes({}, made, "campaigns", datetime(2026, 11, 1, tzinfo=UTC))
    >>> entry = json.loads(one.record)
    >>> entry["by"], entry["action"], entry["promise"], entry["text"]
    ('campaigns', 'made', 'a', '100 exposures of group=toys (each day, UTC)')
    """
    return [
        _record("made" if old is None else "ended" if new is None else "changed", by, now, note, name, old, new)
        for name in dict.fromkeys([*before, *after])
        for old, new in [(before.get(name), after.get(name))]
        if old != new
    ]


def audit_start(promises: Mapping[str, ScheduledPromise], now: datetime, *, is_new: bool) -> list[AuditRecord]:
    """Return the records with which an audit begins: the promises that there are.

    Parameters
    ----------
    promises
        The promises by id.
    now
        The time.
    is_new
        Whether the settings have made them now. Otherwise the ledger is of a version without an audit, and nobody knows
        who made them.
    """
    if is_new:
        return audit_changes({}, promises, SETTINGS, now)
    note = "made before the audit began"
    return [_record("found", "", now, note, name, None, promise) for name, promise in promises.items()]


def audit_view(page: AuditPage) -> AuditView:
    """Return some entries of the audit as the API has them."""
    return AuditView(
        entries=[
            msgspec.convert({"number": number, **json.loads(record)}, AuditEntry) for number, record in page.entries
        ],
        total=page.total,
        digest=page.digest,
        complete=not page.damage,
        damage=list(page.damage),
    )


def _record(
    action: str,
    by: str,
    now: datetime,
    note: str,
    name: str,
    old: ScheduledPromise | None,
    new: ScheduledPromise | None,
) -> AuditRecord:
    values = {
        "at": now.astimezone(UTC).isoformat(),
        "by": by,
        "action": action,
        "promise": name,
        "before": None if old is None else old.to_dict(),
        "after": None if new is None else new.to_dict(),
        "text": str(old if new is None else new),
        "before_text": "" if old is None or new is None else str(old),
        "note": note,
    }
    return AuditRecord(uuid.uuid4().hex, json.dumps(values, ensure_ascii=False))
