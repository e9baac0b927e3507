"""Arguments of the wrong type are refused with an error of this package, which says what was expected."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fairsync as fs

CATALOG = fs.Catalog(np.eye(4), ["a", "a", "b", "b"])
WRONG: dict[str, tuple[Callable[[Any], object], Any]] = {
    "coordinator of a front end": (lambda wrong: fs.FrontEnd(CATALOG, wrong), None),
    "seconds of a retention": (lambda wrong: fs.Retention(wrong), "x"),
    "groups of a ledger": (lambda wrong: fs.MemoryLedger(wrong), "x"),
    "url of a ledger": (lambda wrong: fs.SqlLedger(wrong, 2), 3),
    "seconds between saves": (lambda wrong: fs.FairRetriever(CATALOG, k=2, save_seconds=wrong), "x"),
    "seconds of a lease": (lambda wrong: fs.Coordinator(CATALOG, k=2, lease_seconds=wrong), "x"),
    "catalog of a coordinator": (lambda wrong: fs.Coordinator(wrong, k=2), np.eye(3)),
    "catalog to open": (fs.open_catalog, None),
    "place of a catalog": (lambda wrong: fs.save_catalog(CATALOG, wrong), None),
    "place of a retriever": (lambda wrong: fs.FairRetriever(CATALOG, k=2).save(wrong), None),
    "retriever to load": (fs.FairRetriever.load, None),
    "hindsight of a report": (lambda wrong: fs.FairRetriever(CATALOG, k=2).report(wrong), 3),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_error_says_what_was_given(what: str) -> None:
    call, wrong = WRONG[what]
    with pytest.raises(fs.InvalidInputError, match=r"got|must"):
        call(wrong)
