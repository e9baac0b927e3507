"""The audit: who made, changed and ended which promise, and when."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from fairsync.service.schema.record import Moment, Record


class AuditEntry(Record, frozen=True, kw_only=True):
    """One change of one promise."""

    number: Annotated[int, Meta(description="Entries are numbered from 1 without gaps.")]
    at: Moment
    by: Annotated[
        str,
        Meta(
            description="Name of the token; 'settings' for the promises of the first start. Empty if the service has no"
            " tokens, or if `note` says why it happened."
        ),
    ]
    action: Annotated[
        Literal["made", "changed", "ended", "found", "restored"],
        Meta(
            description="'found': the promise was made before the audit began. 'restored': a backup took the place of"
            " the ledger; `note` says how many later entries it lacks."
        ),
    ]
    promise: Annotated[str, Meta(description="Id of the promise.")] = ""
    before: Annotated[dict[str, Any] | None, Meta(description="The promise before; null if it was made.")] = None
    after: Annotated[dict[str, Any] | None, Meta(description="The promise since; null if it has ended.")] = None
    text: Annotated[str, Meta(description="The promise since, or the one that ended, as a sentence.")] = ""
    before_text: Annotated[str, Meta(description="The promise that was changed, as a sentence.")] = ""
    note: Annotated[str, Meta(description="Why it happened, if no caller has asked for it.")] = ""


class AuditView(Record, frozen=True, kw_only=True):
    """Entries of the audit, the latest first."""

    entries: list[AuditEntry]
    total: Annotated[int, Meta(description="Entries that were ever written.")]
    digest: Annotated[
        str,
        Meta(description="Made of all entries. Noted elsewhere, it proves later that none of them was changed."),
    ]
    complete: Annotated[bool, Meta(description="Whether all entries are there, as they were written.")]
    damage: Annotated[list[str], Meta(description="What was truncated or changed in the ledger's database.")]
