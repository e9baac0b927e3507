"""Errors. Each message says what is wrong, where, and what to do next."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches


class FairSyncError(Exception):
    """Base class of every error that this package raises on purpose."""


class InvalidInputError(FairSyncError, ValueError):
    """An argument cannot be used as given; the message says how to correct it."""


class UnusableLedgerError(InvalidInputError):
    """A ledger that cannot be used as it is: it is damaged, or refuses access. Calls of a running service fail."""


class BackendUnavailableError(FairSyncError):
    """A server did not answer in time. The outcome of the call is unknown: repeat it only if it is idempotent.

    Retrievals with request ids, settlements and reports of impressions are: they are counted once.
    """


class RepeatedRequestError(FairSyncError):
    """Requests that the ledger has an answer for: their request ids were used before.

    Attributes
    ----------
    request_ids : tuple of str
        The ids of these requests.
    """

    def __init__(self, request_ids: Sequence[str]) -> None:
        self.request_ids = tuple(request_ids)
        super().__init__(f"{len(self.request_ids)} of the requests were answered before: {self.request_ids[0]!r}, ...")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.request_ids,)


class LeaseBusyError(FairSyncError):
    """A lease cannot be granted yet: promises are so near that other leases have to be settled first."""

    def __init__(self) -> None:
        super().__init__("Promises are so near that other leases must be settled first. Ask again.")


class UnknownLeaseError(FairSyncError):
    """There is no lease of this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!r:.80} is not the name of a lease.")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.name,)


class LostLeaseError(FairSyncError):
    """A lease that was lost, and has expired or was released, cannot be settled while there are caps.

    What it showed could exceed them: others may have used what it had of them. Nothing was counted. Do not return its
    answers: lease again. A :class:`fairsync.FrontEnd` does so itself.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"The lease {number} has expired, and its answers do not count: lease again.")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.number,)


class ExpiredRequestError(InvalidInputError):
    """A repeated request whose answer is no longer saved (:class:`fairsync.Retention`). It was not searched again.

    Attributes
    ----------
    request_id : str
        The id of the request.
    """

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        super().__init__(
            f"the request {request_id!r} was answered and counted too long ago for its answer to be saved still: send"
            " a new request under a new id."
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.request_id,)


class UnknownRequestError(InvalidInputError):
    """A request id that has no answer, or one without an explanation.

    Attributes
    ----------
    request_id : str
        The id of the request.
    """

    def __init__(self, request_id: str, why: str = "was never answered, or its answer is no longer known") -> None:
        self.request_id, self._why = request_id, why
        super().__init__(f"the request {request_id!r} {why}.")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.request_id, self._why)


class MissingPackageError(FairSyncError, ImportError):
    """An optional package is not installed; the message has the pip command that installs it."""


class MissingTorchError(MissingPackageError):
    """The model needs torch, which is not installed."""


class UnwritablePathError(FairSyncError, OSError):
    """A file or folder cannot be written; the message says why."""


class AccessError(FairSyncError):
    """The service requires a token, or another one than was sent."""


class RefusedError(InvalidInputError):
    """The service refused a call; nothing was changed.

    Attributes
    ----------
    status : int
        Status of the HTTP response.
    error : str
        A stable word for programs.
    """

    def __init__(self, status: int, error: str, message: str) -> None:
        super().__init__(message)
        self.status, self.error = status, error

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.status, self.error, str(self))


class UnknownPromiseError(InvalidInputError):
    """A promise that does not exist, or was withdrawn."""


class UnknownGroupError(InvalidInputError):
    """A group label that the catalog does not hold.

    Parameters
    ----------
    unknown
        The labels that were asked for and do not exist.
    known
        The labels of the catalog, from which close ones are suggested.
    attribute
        Another attribute that has the first of the unknown labels, if there is one.

    Attributes
    ----------
    labels : tuple
        The unknown labels.

    Examples
    --------
    >>> error = UnknownGroupError(["sonny"], ["Sony", "Philips"])
    >>> error.labels
    ('sonny',)
    >>> print(error)
    The catalog has no group 'sonny'. Did you mean 'Sony'? Labels must match exactly, in type and spelling.
    """

    def __init__(self, unknown: Sequence[object], known: Sequence[object], attribute: str | None = None) -> None:
        self.labels = tuple(unknown)
        self._known, self._attribute = tuple(known), attribute
        shown = ", ".join(repr(label) for label in self.labels[:5])
        more = f" and {len(self.labels) - 5} more" if len(self.labels) > 5 else ""
        close = _closest(self.labels[0], known) if self.labels else []
        hint = (
            f"Did you mean {' or '.join(repr(label) for label in close)}?"
            if close
            else f"It has {len(known)} groups, such as {', '.join(repr(label) for label in known[:3])}."
        )
        if attribute is not None:
            hint += f" {self.labels[0]!r} is a label of {attribute!r}: name the attribute, as in a promise."
        plural = "groups" if len(self.labels) > 1 else "group"
        super().__init__(
            f"The catalog has no {plural} {shown}{more}. {hint} Labels must match exactly, in type and spelling."
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        # By default an exception is unpickled from its message. These cross process boundaries (Ray, HTTP workers).
        return type(self), (self.labels, self._known, self._attribute)


class InfeasibleFloorsError(FairSyncError, ValueError):
    """Floors, or promises of any kind, that no plan of candidates can keep.

    Parameters
    ----------
    group
        Label of the group whose floor is too high, or None when the floors are too high in total.
    floor
        The floor that was asked for (the sum of the floors when ``group`` is None).
    reason
        Why it cannot be met.
    largest_feasible
        The largest value that could be met.
    remedy
        What to do about it. By default: lower the floor, or lengthen the horizon.
    conflict
        Names of promises that cannot hold together, while all but any one of them can. The message is then the reason
        and the remedy.
    largest, smallest
        By name, the largest ``at_least`` and the smallest ``at_most`` that could hold if nothing else changed.

    Examples
    --------
    >>> print(InfeasibleFloorsError("Sony", 500, "it has 2 items, shown at most 100 times each", 200))
    The floor of group 'Sony' is 500, which cannot be met: it has 2 items, shown at most 100 times each.
    The largest feasible floor is 200. Lower the floor to that, or lengthen the horizon.
    """

    def __init__(
        self,
        group: str | int | None,
        floor: int,
        reason: str,
        largest_feasible: int,
        remedy: str | None = None,
        conflict: Sequence[str] = (),
        largest: Mapping[str, int] | None = None,
        smallest: Mapping[str, int] | None = None,
    ) -> None:
        self.group = group
        self.floor = floor
        self.reason = reason
        self.largest_feasible = largest_feasible
        self.remedy = remedy
        self.conflict = tuple(conflict)
        self.largest = dict(largest or {})
        self.smallest = dict(smallest or {})
        whole = group is None
        subject = f"The floors add up to {floor:,}" if whole else f"The floor of group {group!r} is {floor:,}"
        largest_what, lower = ("total", "some floors") if whole else ("floor", "the floor to that")
        usual = f"The largest feasible {largest_what} is {largest_feasible:,}. Lower {lower}, or lengthen the horizon."
        start = reason if conflict else f"{subject}, which cannot be met: {reason}"
        super().__init__(f"{start}. {remedy or usual}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        given = (self.group, self.floor, self.reason, self.largest_feasible, self.remedy)
        return type(self), (*given, self.conflict, self.largest, self.smallest)


def _closest(label: object, known: Sequence[object]) -> list[object]:
    """Return the known labels most similar to ``label``, regardless of type and case."""
    by_text = {str(other).casefold(): other for other in known}
    return [by_text[text] for text in get_close_matches(str(label).casefold(), by_text, n=2, cutoff=0.7)]


class UndecidedPromisesError(InvalidInputError):
    """It could not be decided in time whether promises can hold together. They were not accepted."""


class TooManyPreviewsError(FairSyncError):
    """As many previews are being computed as may be."""


class CallCancelledError(FairSyncError):
    """Nobody waits any longer for the answer of a preview, or of a change that was not made yet."""
