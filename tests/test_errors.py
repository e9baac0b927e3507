"""Errors survive pickling, because they cross process boundaries (Ray, HTTP workers)."""

import pickle

import pytest

from fairsync.errors import (
    BackendUnavailableError,
    FairSyncError,
    InfeasibleFloorsError,
    InvalidInputError,
    RepeatedRequestError,
    UnknownGroupError,
)


@pytest.mark.parametrize(
    "error",
    [
        BackendUnavailableError("away"),
        InfeasibleFloorsError("Sony", 500, "it has 2 items", 200),
        InfeasibleFloorsError(None, 500, "there are 200 slots", 200, remedy="Buy more."),
        InvalidInputError("no"),
        RepeatedRequestError(["a", "b"]),
        UnknownGroupError(["sonny", 7], ["Sony", "Philips"]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_can_be_pickled(error: FairSyncError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
