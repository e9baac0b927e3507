"""Leader election: one of several processes leads at a time, until it stops renewing its lead."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from fairsync.errors import BackendUnavailableError

if TYPE_CHECKING:
    from fairsync.coordination.redis.store import RedisStore

# Whoever leads says so every second or so; after this long without a word another may.
LEAD_SECONDS = 10.0

# KEYS: who leads. ARGV: who asks, milliseconds, and whether it takes the lead, asks for it, or thinks that it has it.
_HOLD = """
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 1
end
if ARGV[3] == 'take' or ARGV[3] == 'ask' and not holder then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return 1
end
return 0
"""
# KEYS: what is kept, who leads. ARGV: who must lead (none: anybody may), the name, and what is to be kept.
_KEEP = """
if ARGV[1] ~= '' and redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
return 1
"""
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"


class Lead:
    """The lead of one process over a record, by the clock of the server.

    Whoever has lost the lead is told so once before it can have it again: in between, others may have changed what it
    thinks it knows. Until it is told, the server refuses what it does as the leader.

    Parameters
    ----------
    store
        Of the record.
    who
        Its name, for people who look who leads: the server has it under ``{name}:lead``.
    """

    def __init__(self, store: RedisStore, who: str) -> None:
        self._store, self._key, self._token = store, store.key("lead"), f"{who} {secrets.token_hex(8)}"
        self._held = False

    @property
    def token(self) -> str:
        """By which the server knows it as the leader; empty if it did not lead when it last asked."""
        return self._token if self._held else ""

    def ask(self, *, take: bool = False) -> bool:
        """Return whether this process leads, for some seconds more; if nobody does, it does.

        Parameters
        ----------
        take
            Whether to take the lead from whoever has it.
        """
        how = "take" if take else "think" if self._held else "ask"
        milliseconds = int(LEAD_SECONDS * 1000)
        answer = self._store.ask(lambda client: client.eval(_HOLD, 1, self._key, self._token, milliseconds, how))
        self._held = bool(answer)
        return self._held

    def save(self, name: str, value: bytes) -> None:
        """Keep something beside the record, unless this process has lost the lead and does not know yet."""
        keys, token = (self._store.key("kept"), self._key), self.token
        if not self._store.ask(lambda client: client.eval(_KEEP, 2, *keys, token, name, value)):
            raise deposed()

    def release(self) -> None:
        """Let another lead at once."""
        if self._held:
            self._held = False
            self._store.ask(lambda client: client.eval(_RELEASE, 1, self._key, self._token))


def deposed() -> BackendUnavailableError:
    """Return the error for whoever still acts as the leader, and no longer is."""
    return BackendUnavailableError("another replica has taken the lead meanwhile: nothing was changed. Try again.")
