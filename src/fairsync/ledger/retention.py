"""Retention: for how long a ledger saves answers and idempotency keys."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from fairsync.ledger.database import Transaction

# Rows that are deleted at a time.
_MOST_AT_ONCE = 5000


@dataclass(frozen=True)
class Retention:
    """How long a repeated request gets the answer that it got before, and is not counted again.

    An answer is saved for ``seconds``, or until newer ones fill ``max_bytes``. After that its request id is still known
    until newer ones fill ``max_ids``, and a repeat is refused. The same number of idempotency keys of other writes is
    known, each for at most ``seconds``.

    Attributes
    ----------
    seconds : float
        Time for which answers are saved.
    max_bytes : int
        Size of all saved answers together, approximately.
    max_ids : int
        Number of request ids, and of idempotency keys, that are known. Each takes about 100 bytes.
    """

    seconds: float = 24 * 3600.0
    max_bytes: int = 1_000_000_000
    max_ids: int = 10_000_000

    def __post_init__(self) -> None:
        given = (self.seconds, self.max_bytes, self.max_ids)
        is_number = all(isinstance(one, Real) for one in given)
        if not is_number or not self.seconds > 0 or self.max_bytes < 1 or self.max_ids < 1:
            raise InvalidInputError(
                f"retention needs a positive time, size and number, got {self.seconds}, {self.max_bytes} and"
                f" {self.max_ids}."
            )


def delete_old(transaction: Transaction, retention: Retention) -> None:
    """Delete idempotency keys and answers that are no longer saved; of the latter the request ids stay.

    A few thousand at a time, so that a transaction stays short. It is called once per thousand new ones.
    """
    now = transaction.execute("SELECT {now}")[0][0]
    last, mean = transaction.execute(
        "SELECT max(number), avg(size) FROM"
        " (SELECT number, length(answer) AS size FROM answers ORDER BY number DESC LIMIT 1000) AS latest"
    )[0]
    if last is not None:
        ((expired,),) = transaction.execute(
            "SELECT max(number) FROM (SELECT number, answered_at FROM answers ORDER BY number LIMIT :most) AS first"
            " WHERE answered_at < :oldest OR number <= :last",
            most=_MOST_AT_ONCE,
            oldest=now - retention.seconds,
            last=last - int(retention.max_bytes / max(float(mean), 1.0)),
        )
        if expired is not None:
            transaction.execute(
                "INSERT INTO expired_answers (request_id)"
                " SELECT request_id FROM answers WHERE number <= :number ORDER BY number",
                number=expired,
            )
            # Only those: a slower process may have saved an answer with a smaller number meanwhile.
            transaction.execute(
                "DELETE FROM answers WHERE number <= :number AND request_id IN"
                " (SELECT request_id FROM expired_answers)",
                number=expired,
            )
    for table, condition in (("keys", "recorded_at < :oldest OR"), ("expired_answers", "")):
        rows = transaction.execute(
            f"SELECT max(number) FROM (SELECT * FROM {table} ORDER BY number LIMIT :most) AS first"
            f" WHERE {condition} number <= (SELECT max(number) FROM {table}) - :max_ids",
            most=_MOST_AT_ONCE,
            max_ids=retention.max_ids,
            **({"oldest": now - retention.seconds} if condition else {}),
        )
        if rows[0][0] is not None:
            _delete_up_to(transaction, table, rows[0][0])


def _delete_up_to(transaction: Transaction, table: str, number: int) -> None:
    transaction.execute(f"DELETE FROM {table} WHERE number <= :number", number=number)
