"""A ledger on a Redis or Valkey server: it outlives the process and its machine, and others can read it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fairsync.coordination.redis.changes import Change, Command, Seen
from fairsync.coordination.redis.lead import Lead
from fairsync.coordination.redis.lines import add_up, pack, unpack
from fairsync.coordination.redis.store import RedisStore
from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.ledger.base import Entry, Totals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_FORMAT = 1


class RedisLedger:
    """Keeps the record on a server. What `record` has returned from is there; with `appendfsync always`, on its disk.

    Any number of processes may read it. One retriever or coordinator at a time should write to it, since each goes by
    the counts it has seen itself. Several share a promise by
    :class:`fairsync.coordination.redis.RedisCoordinator`, which keeps its record in a ledger of this kind.

    Parameters
    ----------
    url
        `redis://host:6379/0`; `rediss://` for TLS. A password in it appears in no message.
    n_groups
        How many groups a new ledger is to count.
    name
        Of the ledger: one server may hold many.
    timeout
        Seconds for which a server that is away is tried again, before `BackendUnavailableError`.
    replica
        Under which others see who leads, where several share it.
    """

    def __init__(
        self, url: str, n_groups: int, name: str = "fairsync", timeout: float = 10.0, replica: str = "replica"
    ) -> None:
        self.store = RedisStore(url, name, timeout)
        self.lead = Lead(self.store, replica)
        try:
            self.store.warn_if_it_forgets()
            self._seen = self._open(n_groups)
        except BaseException:
            self.store.close()
            raise

    def totals(self) -> Totals:
        """Return where the present horizon stands."""
        return _standing(self.look())

    def past(self) -> Sequence[Totals]:
        """Return the standings at the end of the horizons before it, oldest first."""
        seen = self.look()
        n_groups, last = len(_standing(seen).exposures), int(seen.fields["horizon"]) - 1
        if last < 0:
            return []
        packed = self.store.ask(lambda client: client.lrange(self.store.key("past"), 0, last))
        return [unpack(one).grown(n_groups) for one in packed]  # type: ignore[arg-type]

    def record(
        self, entries: Sequence[Entry], key: str | None = None, answers: Mapping[str, bytes] | None = None
    ) -> bool:
        """Add entries, all of them or, when it raises, none, unless that was done before under this key."""

        def recorded(seen: Seen) -> Change:
            totals, horizon, ended = _standing(seen), int(seen.fields["horizon"]), []
            for entry in entries:
                if entry.opens_horizon:
                    ended.append(pack(totals))
                    totals = Totals.zero(len(totals.exposures), entry.began)
                totals = totals.after(entry)
            put: dict[str, bytes | str | int] = {"standing": pack(totals), "horizon": horizon + len(ended)}
            past: list[Command] = [["RPUSH", self.store.key("past"), *ended]] if ended else []
            return Change(put, commands=past, answers=answers or {})

        return self._change(recorded, "" if key is None else key)

    def answer(self, request_id: str) -> bytes | None:
        """Return what was answered to a request; empty if that is too long ago to be kept, None if nothing was."""
        return self.store.ask(lambda client: client.hget(self.store.key("answers"), request_id))  # type: ignore[return-value]

    def grow(self, n_groups: int) -> None:
        """Go on with more groups."""
        self._change(lambda seen: Change({"standing": pack(_standing(seen).grown(n_groups))}))

    def save(self, name: str, value: bytes) -> None:
        """Keep something beside the record; whoever leads may do so only for as long as it does."""
        self.lead.save(name, value)

    def load(self, name: str) -> bytes | None:
        """Return what is kept under this name."""
        return self.store.load(name)

    def look(self) -> Seen:
        """Return the record as it is now."""
        seen = self._seen
        newer = self.store.read(seen.version, len(seen.lines))
        if newer is not None:
            self._seen = seen = _after(seen, newer)
        return seen

    def close(self) -> None:
        """Let go of the lead, and of the server."""
        try:
            self.lead.release()
        except BackendUnavailableError:  # then the lead ends by itself
            pass
        finally:
            self.store.close()

    def __enter__(self) -> RedisLedger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, n_groups: int) -> Seen:
        new = Change({"format": _FORMAT, "horizon": 0, "standing": pack(Totals.zero(n_groups))})
        self.store.swap("", new)  # unless it is there
        seen = self.store.read()
        assert seen is not None
        found = int(seen.fields["format"])
        if found > _FORMAT:
            raise InvalidInputError(
                f"the ledger {self.store.name!r} was written by a later version of FairSync (format {found}, this one"
                f" reads {_FORMAT}): update FairSync."
            )
        return seen

    def _change(self, decide: Callable[[Seen], Change], receipt: str = "") -> bool:
        """Make a change, deciding anew whenever somebody else's came first; return False if the receipt is known."""
        seen = self._seen
        while True:
            change = decide(seen)
            swap = self.store.swap(seen.version, change, receipt, lines=len(seen.lines))
            if swap.newer is None:
                break
            seen = _after(seen, swap.newer)
        if swap.version:
            put = {
                name: str(value).encode() if not isinstance(value, bytes) else value
                for name, value in change.put.items()
            }
            seen = Seen({**seen.fields, **put, "version": swap.version.encode()}, swap.lines)
        self._seen = seen
        return bool(swap.version)


def _standing(seen: Seen) -> Totals:
    return add_up(unpack(seen.fields["standing"]), seen.lines)


def _after(seen: Seen, newer: Seen) -> Seen:
    """Return the record as it is, if all that is new may be some lines."""
    return newer if newer.fields else replace(seen, lines=(*seen.lines, *newer.lines))
