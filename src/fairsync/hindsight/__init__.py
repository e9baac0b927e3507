"""The best plan had all requests been known, and bounds that prove how good it is."""

from fairsync.hindsight.best_plan import Effort
from fairsync.hindsight.hindsight import Hindsight, hindsight

__all__ = ["Effort", "Hindsight", "hindsight"]
