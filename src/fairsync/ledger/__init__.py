"""Ledgers: the durable record of exposures."""

from fairsync.ledger.base import Entry, Ledger, Totals
from fairsync.ledger.memory import MemoryLedger
from fairsync.ledger.opening import open_existing, open_ledger
from fairsync.ledger.retention import Retention
from fairsync.ledger.sql_ledger import SqlLedger

__all__ = ["Entry", "Ledger", "MemoryLedger", "Retention", "SqlLedger", "Totals", "open_existing", "open_ledger"]
