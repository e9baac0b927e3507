"""Calls to a server that may be down or starting: repeated until a timeout, with errors that say what to do."""

import time
from collections.abc import Callable
from typing import TypeVar

from fairsync.errors import BackendUnavailableError, InvalidInputError

_Answer = TypeVar("_Answer")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0


def refusal(server: str, words: str, remedy: str) -> InvalidInputError:
    """Return the error for a call that a server refuses, whenever it is made."""
    return InvalidInputError(f"{server} refuses: {words.strip().rstrip('.')}. {remedy}".rstrip())


def no_answer(server: str, words: str) -> BackendUnavailableError:
    """Return the error for a call that may succeed later."""
    return BackendUnavailableError(
        f"{server} does not answer as it should: {words.strip().rstrip('.')}. Start it, check url= and its key, or give"
        " it more time with timeout=."
    )


def retry(call: Callable[[float], _Answer], timeout: float) -> _Answer:
    """Make an idempotent call, given the seconds left, and repeat it until the timeout if the server does not answer.

    Parameters
    ----------
    call
        Raises `BackendUnavailableError` if a repetition may help.
    timeout
        Seconds that the call may take, with all repetitions.

    Examples
    --------
    >>> answers = [BackendUnavailableError("it is starting"), 42]
    >>> def ask(left):
    ...     answer = answers.pop(0)
    ...     if isinstance(answer, Exception):
    ...         raise answer
    ...     return answer
    >>> retry(ask, timeout=5.0)
    42
    """
    end, pause = time.monotonic() + timeout, _FIRST_PAUSE
    while True:
        try:
            return call(max(end - time.monotonic(), pause))
        except BackendUnavailableError:
            if time.monotonic() + pause >= end:
                raise
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
