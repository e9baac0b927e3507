"""A record in Redis or Valkey that many processes change: connections, questions, and servers that are away."""

from __future__ import annotations

import logging
import random
import secrets
import time
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from fairsync.coordination.redis.changes import SWAP, Change, Seen, Swap
from fairsync.coordination.redis.lead import deposed
from fairsync.coordination.redis.lines import Line
from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError, RepeatedRequestError
from fairsync.ledger.base import MAX_ANSWERS, MAX_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fairsync.coordination.redis.changes import Command

T = TypeVar("T")
_log = logging.getLogger(__name__)
# Answers that were lost, the latest of them: as many as in fairsync.coordination.lease_table.
_MOST_LOST = 10_000
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5

_SWAP = SWAP
_LIMITS = {"RECEIPTS": MAX_KEYS, "ANSWERS": MAX_ANSWERS, "REQUESTS": MAX_KEYS - MAX_ANSWERS}
for _word, _limit in _LIMITS.items():
    _SWAP = _SWAP.replace(_word, str(_limit))

# Servers of which it was said already that they may lose what they acknowledge.
_told_of: set[str] = set()


class RedisStore:
    """The record of one name on a server.

    Parameters
    ----------
    url
        `redis://host:6379/0`, `rediss://user:password@host:6380/0?ssl_ca_certs=/etc/ca.pem` or `unix:///path`.
    name
        All keys begin with it.
    timeout
        Seconds for which a server that is away is tried again.
    """

    def __init__(self, url: str, name: str, timeout: float) -> None:
        if not name or set(name) & set("{}"):
            raise InvalidInputError(f"name must be some text without braces, got {name!r}.")
        if not timeout > 0:
            raise InvalidInputError(f"timeout must be a positive number of seconds, got {timeout}.")
        self.name, self.timeout = name, timeout
        try:
            split = urlsplit(url)
            self.address = f"{split.hostname}:{split.port or 6379}" if split.hostname else split.path
            self._client = redis.Redis.from_url(
                url, socket_timeout=timeout / 3, socket_connect_timeout=timeout / 3, retry=Retry(NoBackoff(), 0)
            )
        except (ValueError, TypeError, AttributeError):
            # What is wrong with it is not repeated: a password with a slash would be part of the message.
            raise InvalidInputError(
                "the url cannot be read: write redis://[[user]:password@]host[:port][/number], or rediss:// for TLS,"
                " with special characters of the password as %XX."
            ) from None
        parts = ("", "receipts", "lost", "answers", "answered", "forgotten", "lead", "lines")
        self._keys = [self.key(part).encode() for part in parts]
        self._ahead, self._is_away = 0.0, False
        self._swap = self._client.register_script(_SWAP)

    def key(self, part: str = "") -> str:
        """Return the key of a part of the record. All lie in one slot of a cluster."""
        return f"{{{self.name}}}:{part}" if part else f"{{{self.name}}}"

    def now(self) -> float:
        """Return the time of the server's clock, as of its last answer: clocks of replicas may go as they like."""
        return time.monotonic() + self._ahead

    def read(self, known: str = "", lines: int = 0, asked: int | None = None) -> Seen | None:
        """Return the record; None if it is still of the version known, and no lines were added to those known."""
        newer = self._run("look", known, lines, "", "", asked, Change()).newer
        return Seen() if newer is None and not known else newer

    def swap(self, known: str, change: Change, receipt: str = "", asked: int | None = None, *, lines: int = 0) -> Swap:
        """Make another version of the record, if it is still of the version known and the receipt is new.

        So many lines are in what the change writes, and are dropped. If others were added, they stay.

        Raises
        ------
        RepeatedRequestError
            Some of the requests have been answered before.
        BackendUnavailableError
            Another process leads than must.
        """
        return self._run("swap", known, lines, secrets.token_hex(8), receipt, asked, change)

    def add(
        self, known: str, line: Line, change: Change, receipt: str = "", asked: int | None = None, *, lines: int = 0
    ) -> Swap:
        """Add a line to the record, if it is still of the version known and the receipt is new; as `swap` otherwise.

        So many lines are known; others are told.
        """
        return self._run("add", known, lines, line.dump(), receipt, asked, change)

    def load(self, name: str) -> bytes | None:
        """Return what is kept beside the record under this name."""
        return self.ask(lambda client: client.hget(self.key("kept"), name))  # type: ignore[return-value]

    def lose(self, number: int) -> list[Command]:
        """Return the commands that enter a lease among the lost."""
        lost = self.key("lost")
        return [["ZADD", lost, int(self.now() * 1e6), number], ["ZREMRANGEBYRANK", lost, 0, -1 - _MOST_LOST]]

    def find(self, number: int) -> list[Command]:
        """Return the commands that take a lease out of the lost."""
        return [["ZREM", self.key("lost"), number]]

    def ask(self, action: Callable[[redis.Redis], T]) -> T:
        """Do something on the server that may be done twice; try again while it is away."""
        # While it is away, those who queue for it are told sooner than the first.
        until, pause = time.monotonic() + self.timeout * (0.1 if self._is_away else 1.0), _SHORTEST_PAUSE
        while True:
            try:
                result = action(self._client)
                self._is_away = False
                return result
            except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
                raise InvalidInputError(f"{self.address} does not let us in: {error}") from error
            except (redis.ConnectionError, redis.TimeoutError, ReadOnlyError) as error:
                # A server that was restarted reads its file first, and one that was replaced takes no changes.
                if time.monotonic() + pause > until:
                    self._is_away = True
                    why = str(error).rstrip(".")
                    raise BackendUnavailableError(
                        f"{self.address} does not answer: {why}. Is the server up? Calls go on when it is."
                    ) from error
            except ResponseError as error:
                if "WRONGTYPE" in str(error):
                    raise self.no_ledger() from error
                raise FairSyncError(f"{self.address} refuses: {error}. Nothing was changed.") from error
            except RedisError as error:
                raise FairSyncError(f"{self.address} could not be used: {error}") from error
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def no_ledger(self) -> InvalidInputError:
        """Return the error for a name that something else has."""
        return InvalidInputError(
            f"{self.address} has something else under {self.key()!r}: give the ledger another name."
        )

    def close(self) -> None:
        """Let go of the server."""
        self._client.close()

    def _run(
        self,
        action: str,
        known: str,
        lines: int,
        made: bytes | str,
        receipt: str,
        asked: int | None,
        change: Change,
    ) -> Swap:
        commands: list[Command] = list(change.commands)
        if change.put:
            commands.append(["HSET", self.key(), *_flat(change.put)])
        arguments: list[bytes | str | int] = [known, lines, action, made, receipt, "" if asked is None else asked]
        arguments += [change.leader, change.left, "" if change.least is None else change.least]
        arguments += [len(change.new), len(change.drop), len(change.answers)]
        arguments += [*_flat(change.new), *change.drop, *_flat(change.answers)]
        for command in commands:
            arguments += [len(command), *command]
        outcome, clock, *found = self.ask(lambda client: self._swap(self._keys, arguments, client))
        self._ahead = int(clock[0]) + int(clock[1]) / 1e6 - time.monotonic()
        if outcome == b"repeated":
            return Swap()
        if outcome == b"deposed":
            raise deposed()
        if outcome == b"answered":
            raise RepeatedRequestError([request.decode() for request in found[0]])
        new = tuple(map(Line.load, found[0]))
        if outcome == b"done":
            return Swap(str(made) if action == "swap" else known, new)
        if outcome == b"same" and not new:
            return Swap()
        pairs = found[2] if len(found) > 2 else []
        fields = {name.decode(): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
        seen = Seen(fields, new, bool(found[1]))
        if fields and not seen.version:
            raise self.no_ledger()
        if known and len(found) > 2 and not seen.version:
            raise FairSyncError(
                f"the ledger {self.name!r} is gone from {self.address}: the server lost its data, or somebody deleted"
                " it. Restore a backup, or start anew; then start every replica again."
            )
        return Swap(newer=seen)

    def doubts(self) -> list[str]:
        """Return why the server may lose what it has acknowledged; nothing if it keeps it."""
        wanted = {"appendonly": "yes", "appendfsync": "always"}
        self.ask(lambda client: client.ping())
        try:
            found = {name: self._setting(name) for name in wanted}
            evicts = self._setting("maxmemory-policy").startswith("allkeys")
        except BackendUnavailableError:
            raise
        except FairSyncError:  # servers that others run often keep them to themselves
            return [
                f"{self.address} does not tell its settings: without 'appendonly yes' and 'appendfsync always' it may"
                " lose exposures that it has acknowledged."
            ]
        doubts = []
        if found != wanted:
            has = ", ".join(f"'{name} {value}'" for name, value in found.items())
            doubts.append(
                f"{self.address} may lose exposures that it has acknowledged: it has {has}; set 'appendonly yes' and"
                " 'appendfsync always'."
            )
        if evicts:
            doubts.append(f"{self.address} may evict the ledger: set 'maxmemory-policy noeviction'.")
        return doubts

    def warn_if_it_forgets(self) -> None:
        """Say once whether the server may lose what it has acknowledged."""
        if self.address in _told_of:
            return
        for doubt in self.doubts():
            _log.warning(doubt)
        _told_of.add(self.address)

    def _setting(self, name: str) -> str:
        return str(self.ask(lambda client: client.config_get(name))[name])


def _flat(pairs: Mapping[str, T]) -> Iterator[str | T]:
    """Return names and values in turns."""
    for name, value in pairs.items():
        yield name
        yield value
