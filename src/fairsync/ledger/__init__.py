"""Ledgers: the durable record of exposures.

- base.py has entries, totals and the interface of a ledger; memory.py and sql_ledger.py have the two classes, of which
  opening.py and urls.py choose one. retention.py says how long answers are saved, labels.py what is counted, and
  audit.py who has promised it.
- A `SqlLedger` is in a database (database.py): sqlite.py with file_lock.py, or postgres.py with postgres_errors.py.
  schema.py and schema.sql have its tables, rows.py what is in a row of counts. Processes that share a ledger write with
  shared_entry.py.
- reader.py looks into a ledger, damage.py checks it, and backup.py copies it, by the list of tables in tables.py.
"""

from fairsync.ledger.base import Entry, Ledger, Totals
from fairsync.ledger.memory import MemoryLedger
from fairsync.ledger.opening import open_existing, open_ledger
from fairsync.ledger.retention import Retention
from fairsync.ledger.sql_ledger import SqlLedger

__all__ = ["Entry", "Ledger", "MemoryLedger", "Retention", "SqlLedger", "Totals", "open_existing", "open_ledger"]
