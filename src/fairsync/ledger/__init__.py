"""Ledgers: the durable record of exposures."""

from fairsync.ledger.base import Entry, Ledger, Totals
from fairsync.ledger.memory import MemoryLedger
from fairsync.ledger.sqlite import SqliteLedger

__all__ = ["Entry", "Ledger", "MemoryLedger", "SqliteLedger", "Totals"]
