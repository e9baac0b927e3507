"""The replicas of a shard as a front end sees them: who is up, who is asked next, and what the log is told."""

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
# A ping that failed is repeated after this many seconds, and one that is not answered given up after so many.
_PAUSE, _PATIENCE = 0.25, 30.0

UP, LATE, DOWN = "up", "late", "down"
"""Up: asked in turn. Late: asked where no other is up, until it has answered a ping. Down: not asked until then."""


@dataclass(frozen=True)
class ReplicaHealth:
    """How one replica of a shard is.

    Attributes
    ----------
    shard, replica : int
        Which.
    node : str
        Id of the node it was last heard of on; empty if it never was.
    pid : int
        Its process there, 0 if unknown.
    up : bool
        Whether it is asked in its turn.
    items : int
        How many its shard holds.
    error : str
        What was wrong with it last; empty if nothing was.
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
        To ask.
    number : int
        Among the replicas of its shard.
    standing : ReplicaState or None
        As it last told, None if it never did.
    state : str
        ``UP``, ``LATE`` or ``DOWN``.
    error : str
        What was wrong last; empty if nothing ever was.
    """

    def __init__(self, actor: Any, number: int, standing: ReplicaState | None) -> None:
        self.actor, self.number, self.standing = actor, number, standing
        self.state, self.error = (UP, "") if standing else (DOWN, "it has not answered yet")
        self.since = 0.0
        self.ping: Any = None
        self.next_ping = 0.0

    def probe(self, now: float) -> bool | None:
        """Look after the ping, without waiting; return whether it was answered, None while that is open."""
        if self.ping is None:
            if now >= self.next_ping:
                self.ping, self.next_ping = self.actor.ready.remote(), now + _PATIENCE
            return None
        if not ray.wait([self.ping], timeout=0)[0]:
            if now >= self.next_ping:
                ray.cancel(self.ping)
                self.ping = None
            return None
        answered, self.ping = self.ping, None
        try:
            self.standing = ray.get(answered)
        except RayError as error:
            self.error, self.next_ping = first_line(error), now + _PAUSE
            return False
        self.next_ping = now
        return True


class Replicas:
    """All replicas of one shard. Whoever calls holds the lock of the index.

    Parameters
    ----------
    number
        Of the shard.
    sizes
        (G,) how many items of each group it holds.
    share
        Of the catalog's items.
    replicas
        Those who hold it.
    deadline
        Seconds after which one that is late counts as down.
    """

    def __init__(
        self, number: int, sizes: NDArray[np.int64], share: float, replicas: Sequence[Replica], deadline: float
    ) -> None:
        self.number, self.sizes, self.share, self.replicas = number, sizes, share, replicas
        self._deadline, self._turn = deadline, 0

    def pick(self, asked: Collection[Replica]) -> Replica | None:
        """Return whom to ask next: in turn among those that are up, else one that is late; None if there is none."""
        for state in (UP, LATE):
            able = [one for one in self.replicas if one.state == state and one not in asked]
            if able:
                self._turn += 1
                return able[self._turn % len(able)]
        return None

    def look(self, now: float) -> None:
        """Bring back who has answered a ping, without waiting for anybody."""
        for one in self.replicas:
            if one.state != UP:
                self._settle(one, one.probe(now), now)

    def ping(self, now: float) -> list[Any]:
        """Ask every replica how it is, and return what to wait for."""
        for one in self.replicas:
            if one.ping is None:
                one.next_ping = now
                one.probe(now)
        return [one.ping for one in self.replicas if one.ping is not None]

    def heard(self, now: float) -> list[ReplicaHealth]:
        """Settle what was asked by `ping`: who is not there is down, and who has not answered yet is late."""
        for one in self.replicas:
            if one.ping is None:  # another thread has settled it meanwhile
                continue
            answered = one.probe(now)
            if answered is None:
                self.late(one, now)
            self._settle(one, answered, now)
        items, told = int(self.sizes.sum()), [one.standing or ReplicaState("", 0, 0, "") for one in self.replicas]
        return [
            ReplicaHealth(self.number, one.number, standing.node, standing.pid, one.state == UP, items, one.error)
            for one, standing in zip(self.replicas, told, strict=True)
        ]

    def late(self, one: Replica, now: float) -> None:
        """Note that a replica keeps us waiting."""
        if one.state == UP:
            one.state, one.since, one.error, one.next_ping = LATE, now, "it was slow to answer", now
            one.probe(now)

    def fail(self, one: Replica, why: str, now: float) -> None:
        """Note that a replica does not answer, and tell the log if that is news."""
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
            self.fail(one, one.error, now)
        elif one.state == LATE and now - one.since > self._deadline:
            self.fail(one, f"no answer for {now - one.since:.1f} s", now)

    def _who(self, one: Replica) -> tuple[int, int, str]:
        return self.number, one.number, "" if one.standing is None else f" on node {one.standing.node[:8]}"

    def _consequence(self) -> str:
        if any(one.state != DOWN for one in self.replicas):
            return f"its {self.share:.1%} of the catalog are within reach"
        return f"{self.share:.1%} of the catalog are out of reach"


def first_line(error: BaseException) -> str:
    """Return what an error says, short enough for a log."""
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    # Ray puts the trace of the other process first, and what went wrong last.
    said = "" if not lines else lines[-1] if "ray::" in lines[0] else lines[0]
    return f"{type(error).__name__}: {said}"[:200]
