"""What was promised: bounds on the exposures of selections of items, and whether they can hold together."""

from fairsync.promises.certificate import find_certificate, is_certificate, prune, renew
from fairsync.promises.promise import Promise, each
from fairsync.promises.resolve import ResolvedPromises, resolve_promises

__all__ = [
    "Promise",
    "ResolvedPromises",
    "each",
    "find_certificate",
    "is_certificate",
    "prune",
    "renew",
    "resolve_promises",
]
