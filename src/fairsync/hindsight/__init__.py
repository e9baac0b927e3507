"""The best plan had all requests been known, and bounds that prove how good it is."""

from fairsync.hindsight.best_plan import Effort
from fairsync.hindsight.hindsight import hindsight
from fairsync.hindsight.result import Hindsight

__all__ = ["Effort", "Hindsight", "hindsight"]
