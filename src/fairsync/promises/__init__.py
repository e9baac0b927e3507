"""What was promised: bounds on the exposures of selections of items, and whether they can hold together."""

from fairsync.promises.promise import Promise, each

__all__ = ["Promise", "each"]
