"""The replicas of a shard as a front end sees them: health checks, the choice of a replica, and log messages."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from fairsync.search.ray.shard import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray

_log = logging.getLogger(__name__)
# Seconds between a failed ping and the next one, and until an unanswered ping is cancelled.
_PAUSE, _PING_TIMEOUT = 0.25, 30.0

UP, LATE, DOWN = "up", "late", "down"
"""Up: used in turn. Late: used only if no other is up, until it answers a ping. Down: not used until then."""


@dataclass(frozen=True)
class ReplicaHealth:
    """The health of one replica of a shard.

    Attributes
    ----------
    shard, replica : int
        The numbers of the shard and of the replica.
    node : str
        The id of the node from which it last answered; empty if it never did.
    pid : int
        The id of its process there, 0 if unknown.
    up : bool
        Whether it is up.
    items : int
        The number of items in its shard.
    error : str
        The last error; empty if there was none.
    """

    shard: int
    replica: int
    node: str
    pid: int
    up: bool
    items: int
    error: str


class Replica:
    """One actor that holds a shard.

    Attributes
    ----------
    actor : ray.actor.ActorHandle
        The handle of the actor.
    number : int
        Its number among the replicas of its shard.
    last_seen : ReplicaState or None
        What it answered to the last ping, None if it never answered one.
    state : str
        ``UP``, ``LATE`` or ``DOWN``.
    error : str
        The last error; empty if there never was one.
    """

    def __init__(self, actor: Any, number: int, last_seen: ReplicaState | None) -> None:
        self.actor, self.number, self.last_seen = actor, number, last_seen
        self.state, self.error = (UP, "") if last_seen else (DOWN, "it has not answered yet")
        self.since = 0.0
        self.ping: Any = None
        self.next_ping = 0.0

    def probe(self, now: float) -> bool | None:
        """Send a ping or check its answer, without waiting; return whether it succeeded, None while that is open."""
        if self.ping is None:
            if now >= self.next_ping:
                self.ping, self.next_ping = self.actor.ready.remote(), now + _PING_TIMEOUT
            return None
        if not ray.wait([self.ping], timeout=0)[0]:
            if now >= self.next_ping:
                ray.cancel(self.ping)
                self.ping = None
            return None
        answered, self.ping = self.ping, None
        try:
            self.last_seen = ray.get(answered)
        except RayError as error:
            self.error, self.next_ping = first_line(error), now + _PAUSE
            return False
        self.next_ping = now
        return True


class Replicas:
    """All replicas of one shard. Callers must hold the lock of the index.

    Parameters
    ----------
    number
        The number of the shard.
    sizes
        (G,) the number of items of each group in the shard.
    share
        The share of the catalog's items in the shard.
    replicas
        The replicas that hold the shard.
    deadline
        Seconds after which a late replica counts as down.
    """

    def __init__(
        self, number: int, sizes: NDArray[np.int64], share: float, replicas: Sequence[Replica], deadline: float
    ) -> None:
        self.number, self.sizes, self.share, self.replicas = number, sizes, share, replicas
        self._deadline, self._turn = deadline, 0

    def pick(self, asked: Collection[Replica]) -> Replica | None:
        """Return the replica to use next: those that are up in turn, else a late one; None if there is none."""
        for state in (UP, LATE):
            able = [one for one in self.replicas if one.state == state and one not in asked]
            if able:
                self._turn += 1
                return able[self._turn % len(able)]
        return None

    def check_pings(self, now: float) -> None:
        """Mark replicas as up that have answered a ping, without waiting."""
        for one in self.replicas:
            if one.state != UP:
                self._settle(one, one.probe(now), now)

    def ping(self, now: float) -> list[Any]:
        """Ping every replica, and return the references to wait for."""
        for one in self.replicas:
            if one.ping is None:
                one.next_ping = now
                one.probe(now)
        return [one.ping for one in self.replicas if one.ping is not None]

    def collect_pings(self, now: float) -> list[ReplicaHealth]:
        """Collect the answers to `ping`: a replica that failed is down, and one that has not answered is late."""
        for one in self.replicas:
            if one.ping is None:  # another thread has collected it
                continue
            answered = one.probe(now)
            if answered is None:
                self.mark_late(one, now)
            self._settle(one, answered, now)
        items, last_seen = int(self.sizes.sum()), [one.last_seen or ReplicaState("", 0, 0, "") for one in self.replicas]
        return [
            ReplicaHealth(self.number, one.number, seen.node, seen.pid, one.state == UP, items, one.error)
            for one, seen in zip(self.replicas, last_seen, strict=True)
        ]

    def mark_late(self, one: Replica, now: float) -> None:
        """Mark a replica as late."""
        if one.state == UP:
            one.state, one.since, one.error, one.next_ping = LATE, now, "it was slow to answer", now
            one.probe(now)

    def mark_down(self, one: Replica, why: str, now: float) -> None:
        """Mark a replica as down, and log a warning if it was not down before."""
        one.error = why
        if one.state != DOWN:
            one.state, one.since = DOWN, now
            _log.warning("Shard %d, replica %d%s is down (%s): %s.", *self._who(one), why, self._consequence())

    def _settle(self, one: Replica, answered: bool | None, now: float) -> None:
        if answered:
            was, one.state = one.state, UP
            if was == DOWN:
                _log.warning("Shard %d, replica %d%s is back: %s.", *self._who(one), self._consequence())
        elif answered is False:
            self.mark_down(one, one.error, now)
        elif one.state == LATE and now - one.since > self._deadline:
            self.mark_down(one, f"no answer for {now - one.since:.1f} s", now)

    def _who(self, one: Replica) -> tuple[int, int, str]:
        return self.number, one.number, "" if one.last_seen is None else f" on node {one.last_seen.node[:8]}"

    def _consequence(self) -> str:
        if any(one.state != DOWN for one in self.replicas):
            return f"its {self.share:.1%} of the catalog are within reach"
        return f"{self.share:.1%} of the catalog are out of reach"


def first_line(error: BaseException) -> str:
    """Return the message of an error in one line, short enough for a log."""
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    # Ray puts the traceback of the other process first, and the error itself last.
    said = "" if not lines else lines[-1] if "ray::" in lines[0] else lines[0]
    return f"{type(error).__name__}: {said}"[:200]
