"""An entry, and a process that writes entries until it is killed."""

import numpy as np

from fairsync.ledger import Entry

ENTRY = Entry(np.array([1, 2]), 1, 0.5, 0.25, forced=1)


WRITER = """
import sys, numpy as np
from fairsync.ledger import Entry, SqlLedger
ledger, start = SqlLedger(sys.argv[1], 2), int(sys.argv[2])
for number in range(start, 10**9):
    opens = number % 50 == 0
    ledger.record([Entry(np.array([1, 2]), 1, 0.5, 0.25, opens_horizon=opens)], key=f"{number}")
    print(number, flush=True)
"""
