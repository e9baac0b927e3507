"""A record in Redis or Valkey that many processes change, none of them unaware of what another did.

A change names the version of the record that it was made for, and the version that it makes. The server carries it out
only if the record is still of the first one. Whoever was cut off, and does not know whether a change was made, says it
again: that is recognised, unless others have changed the record since. Then a receipt tells, or what the record says.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar
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

from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError, RepeatedRequestError
from fairsync.ledger.base import ANSWERS_KEPT, KEYS_KEPT
from fairsync.ledger.redis_lead import deposed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")
Command: TypeAlias = "Sequence[bytes | str | int]"
_log = logging.getLogger(__name__)
# Answers that were lost, the latest of them: as many as in fairsync.accounts.
_MOST_LOST = 10_000
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5
# A command of a script can have some thousand words.
_MOST_WORDS = 1000

# KEYS: the record, receipts, lost leases, answers, which requests have them or had them, and who leads. ARGV: the
# version known, the version to make (none: only look), a receipt, the lease that is asked about, who must lead (none:
# whoever it is), how many answers, request and answer of each, and the commands of the change, each after its length.
_SWAP = """
local version = redis.call('HGET', KEYS[1], 'version') or ''
local known, made, receipt, asked = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local time = redis.call('TIME')
if made ~= '' and version == made then return {'done', time} end
if ARGV[5] ~= '' and redis.call('GET', KEYS[7]) ~= ARGV[5] then return {'deposed', time} end
if receipt ~= '' and redis.call('ZSCORE', KEYS[2], receipt) then return {'repeated', time} end
if version ~= known or version == '' and redis.call('EXISTS', KEYS[1]) == 1 then
    local lost = asked ~= '' and redis.call('ZSCORE', KEYS[3], asked) and 1 or 0
    return {'stale', time, redis.call('HGETALL', KEYS[1]), lost}
end
if made == '' then return {'done', time} end
local at = 7 + 2 * ARGV[6]
local repeated = {}
for i = 7, at - 1, 2 do
    if redis.call('HEXISTS', KEYS[4], ARGV[i]) == 1 then repeated[#repeated + 1] = ARGV[i] end
end
if #repeated > 0 then return {'answered', time, repeated} end
for i = 7, at - 1, 2 do
    redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 1])
    if redis.call('RPUSH', KEYS[5], ARGV[i]) > ANSWERS then
        local old = redis.call('LPOP', KEYS[5])
        redis.call('HSET', KEYS[4], old, '')
        if redis.call('RPUSH', KEYS[6], old) > REQUESTS then
            redis.call('HDEL', KEYS[4], redis.call('LPOP', KEYS[6]))
        end
    end
end
while at <= #ARGV do
    redis.call(unpack(ARGV, at + 1, at + ARGV[at]))
    at = at + ARGV[at] + 1
end
if receipt ~= '' then
    local now = time[1] * 1000000 + time[2]
    redis.call('ZADD', KEYS[2], now, receipt)
    redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - RECEIPTS)
end
redis.call('HSET', KEYS[1], 'version', made)
return {'done', time}
"""
_LIMITS = {"RECEIPTS": KEYS_KEPT, "ANSWERS": ANSWERS_KEPT, "REQUESTS": KEYS_KEPT - ANSWERS_KEPT}
for _word, _limit in _LIMITS.items():
    _SWAP = _SWAP.replace(_word, str(_limit))

# Servers of which it was said already that they may lose what they acknowledge.
_told_of: set[str] = set()


@dataclass(frozen=True)
class Seen:
    """The record as it was when it was looked at.

    Attributes
    ----------
    fields : dict
        Of the record; none if there is no record.
    lost : bool
        Whether the lease that was asked about is among the lost.
    """

    fields: Mapping[str, bytes]
    lost: bool = False

    @property
    def version(self) -> str:
        """Of the record; empty if there is none."""
        return self.fields.get("version", b"").decode()


@dataclass(frozen=True)
class Change:
    """All or nothing of it is carried out.

    Attributes
    ----------
    put, drop
        Fields to set and to delete.
    commands
        To be carried out besides.
    answers : dict
        To be kept, by the request. If one of the requests has an answer, nothing is carried out.
    leader : str
        Who must lead, or nothing is carried out (:mod:`fairsync.ledger.redis_lead`); empty if that does not matter.
    """

    put: Mapping[str, bytes | str | int] = field(default_factory=dict)
    drop: Sequence[str] = ()
    commands: Sequence[Command] = ()
    answers: Mapping[str, bytes] = field(default_factory=dict)
    leader: str = ""


@dataclass(frozen=True)
class Swap:
    """What became of a change.

    Attributes
    ----------
    version : str
        That was made; empty if it was not.
    newer : Seen or None
        The record as it is, where another change had come first.
    """

    version: str = ""
    newer: Seen | None = None


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
            parts = urlsplit(url)
            self.address = f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path
            self._client = redis.Redis.from_url(
                url, socket_timeout=timeout / 3, socket_connect_timeout=timeout / 3, retry=Retry(NoBackoff(), 0)
            )
        except (ValueError, TypeError, AttributeError):
            # What is wrong with it is not repeated: a password with a slash would be part of the message.
            raise InvalidInputError(
                "the url cannot be read: write redis://[[user]:password@]host[:port][/number], or rediss:// for TLS,"
                " with special characters of the password as %XX."
            ) from None
        self._ahead, self._is_away = 0.0, False
        self._swap = self._client.register_script(_SWAP)
        try:
            self._warn_if_it_forgets()
        except BaseException:
            self.close()
            raise

    def key(self, part: str = "") -> str:
        """Return the key of a part of the record. All lie in one slot of a cluster."""
        return f"{{{self.name}}}:{part}" if part else f"{{{self.name}}}"

    def now(self) -> float:
        """Return the time of the server's clock, as of its last answer: clocks of replicas may go as they like."""
        return time.monotonic() + self._ahead

    def read(self, known: str = "", asked: int | None = None) -> Seen | None:
        """Return the record; None if it is still of the version known."""
        newer = self._run(known, "", "", asked, Change(), []).newer
        return Seen({}) if newer is None and not known else newer

    def swap(self, known: str, change: Change, receipt: str = "", asked: int | None = None) -> Swap:
        """Make a change, if the record is still of the version known and the receipt is new.

        Raises
        ------
        RepeatedRequestError
            Some of the requests have been answered before.
        BackendUnavailableError
            Another process leads than must.
        """
        commands: list[Command] = list(change.commands)
        if change.put:
            commands.append(["HSET", self.key(), *(part for pair in change.put.items() for part in pair)])
        starts = range(0, len(change.drop), _MOST_WORDS)
        commands += [["HDEL", self.key(), *change.drop[start : start + _MOST_WORDS]] for start in starts]
        return self._run(known, secrets.token_hex(8), receipt, asked, change, commands)

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
                    raise BackendUnavailableError(
                        f"{self.address} does not answer: {error}. Is the server up? Calls go on when it is."
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
        known: str,
        made: str,
        receipt: str,
        asked: int | None,
        change: Change,
        commands: Sequence[Command],
    ) -> Swap:
        keys = [self.key(), *map(self.key, ("receipts", "lost", "answers", "answered", "forgotten", "lead"))]
        arguments: list[bytes | str | int] = [known, made, receipt, "" if asked is None else asked, change.leader]
        arguments += [len(change.answers), *(part for pair in change.answers.items() for part in pair)]
        for command in commands:
            arguments += [len(command), *command]
        outcome, clock, *found = self.ask(lambda client: self._swap(keys, arguments, client))
        self._ahead = int(clock[0]) + int(clock[1]) / 1e6 - time.monotonic()
        if outcome == b"done":
            return Swap(made)
        if outcome == b"repeated":
            return Swap()
        if outcome == b"deposed":
            raise deposed()
        if outcome == b"answered":
            raise RepeatedRequestError([request.decode() for request in found[0]])
        pairs, lost = found
        seen = Seen({name.decode(): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}, bool(lost))
        if pairs and not seen.version:
            raise self.no_ledger()
        if known and not seen.version:
            raise FairSyncError(
                f"the ledger {self.name!r} is gone from {self.address}: the server lost its data, or somebody deleted"
                " it. Restore a backup, or start anew; then start every replica again."
            )
        return Swap(newer=seen)

    def _warn_if_it_forgets(self) -> None:
        """Say once whether the server may lose what it has acknowledged."""
        if self.address in _told_of:
            return
        wanted = {"appendonly": "yes", "appendfsync": "always"}
        self.ask(lambda client: client.ping())
        try:
            found = {name: self._setting(name) for name in wanted}
            evicts = self._setting("maxmemory-policy").startswith("allkeys")
        except FairSyncError as error:
            if isinstance(error, BackendUnavailableError):
                raise
            found, evicts = {}, False  # servers that others run often keep them to themselves
        _told_of.add(self.address)
        if not found:
            _log.warning(
                "%s does not tell its settings: without 'appendonly yes' and 'appendfsync always' it may lose"
                " exposures that it has acknowledged.", self.address,
            )  # fmt: skip
        elif found != wanted:
            _log.warning(
                "%s may lose exposures that it has acknowledged: it has %s; set 'appendonly yes' and 'appendfsync"
                " always'.",
                self.address, ", ".join(f"'{name} {value}'" for name, value in found.items()),
            )  # fmt: skip
        if evicts:
            _log.warning("%s may evict the ledger: set 'maxmemory-policy noeviction'.", self.address)

    def _setting(self, name: str) -> str:
        return str(self.ask(lambda client: client.config_get(name))[name])
