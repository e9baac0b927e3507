"""Ledgers: the record of exposures."""

from fairsync.ledger.base import Entry, Ledger, Standing
from fairsync.ledger.memory import MemoryLedger

__all__ = ["Entry", "Ledger", "MemoryLedger", "Standing"]
