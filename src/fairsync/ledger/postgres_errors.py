"""Errors of Postgres: which are temporary, and what to do about the others."""

from __future__ import annotations

import psycopg

from fairsync.errors import BackendUnavailableError, FairSyncError, UnusableLedgerError

# Errors after which a transaction is repeated: the server ends, starts, or is replaced; a statement took too long,
# because another process holds a lock; two transactions collided; a session was ended because it was idle in a
# transaction; all connections are taken.
_RETRIED = ("08", "57", "40", "23505", "25P", "25006", "55P03", "53300")


class InUseError(psycopg.OperationalError):
    """Another process holds the ledger."""


def can_retry(error: psycopg.Error) -> bool:
    """Return whether a transaction that failed so should be repeated."""
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        # libpq reports a refused login without a code.
        return not any(word in str(error) for word in ("authentication failed", "does not exist", "no pg_hba.conf"))
    return (error.sqlstate or "").startswith(_RETRIED)


def reason_of(error: psycopg.Error) -> str:
    """Return the first line of an error, without what libpq says of the connection."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()] or [type(error).__name__]
    return lines[0].rstrip(".")


def unavailable(error: psycopg.Error, address: str, why: str) -> FairSyncError:
    """Return the error of a server that did not answer in time."""
    if isinstance(error, InUseError):
        return FairSyncError(
            f"{address} is in use by another process: stop it first, or share the ledger between coordinators. If this"
            " process has it open, call close() there."
        )
    if error.sqlstate == "25006":
        return BackendUnavailableError(f"{address} is read-only: connect to the primary server.")
    return BackendUnavailableError(f"{address} does not answer: {why}. Is the server up? Calls go on when it is.")


def translated(error: psycopg.Error, address: str, why: str) -> FairSyncError:
    """Return the error of a server that refuses."""
    if error.sqlstate is None or error.sqlstate.startswith(("28", "3D", "42501")):
        return UnusableLedgerError(f"{address} does not let us in: {why}. Check user, password and rights.")
    if error.sqlstate.startswith(("42P01", "3F")):
        return FairSyncError(f"the ledger is gone from {address}: restore a backup, or start every process again.")
    return FairSyncError(f"{address} refuses: {why}. Nothing was changed.")
