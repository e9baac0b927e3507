"""Changes of a record that many processes make, none of them unaware of what another did.

There are two kinds of changes. *Swapping* makes another version of the record. The server does it only if nobody else
has swapped since. *Adding* appends a line to the record, as requests come and go: many do it side by side, and none
has to wait for another, or to do it again. Lines that were added while somebody worked out a swap stay behind it.

That is right because lines can be added in any order, and after a swap as well as before it, as long as two things hold
that the server looks at each time: leases that a change ends are still out, and enough requests of the horizon are
left for those that it needs (:attr:`Change.least`).

Whoever was cut off, and does not know whether a change was made, says it again. That is recognised: by the version, by
the lease, or by a receipt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.coordination.redis.lines import Line

Command: TypeAlias = "Sequence[bytes | str | int]"

# KEYS: the record, receipts, lost leases, answers, which requests have them or had them, who leads, and the lines.
# ARGV: the version known, and how many of its lines; what to do, and the version to make or the line to add; a receipt,
# the lease that is asked about, and who must lead (none: whoever it is); how many more requests are left after it, and
# how many have to be (none: any number); how many fields are new, and how many end, how many answers there are, and
# then name and value of each, the name of each, request and answer of each; at last other commands, each after its
# length.
SWAP = """
local record, journal = KEYS[1], KEYS[8]
local known, lines, action, made = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local receipt, asked, leader, left, least = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local time = redis.call('TIME')
local version = redis.call('HGET', record, 'version') or ''
local function told(outcome)
    local lost = asked ~= '' and redis.call('ZSCORE', KEYS[3], asked) and 1 or 0
    if version == known and known ~= '' then return {outcome, time, redis.call('LRANGE', journal, lines, -1), lost} end
    return {outcome, time, redis.call('LRANGE', journal, 0, -1), lost, redis.call('HGETALL', record)}
end
if action == 'swap' and version == made then return {'done', time, redis.call('LRANGE', journal, 0, -1)} end
if leader ~= '' and redis.call('GET', KEYS[7]) ~= leader then return {'deposed', time} end
if receipt ~= '' and redis.call('ZSCORE', KEYS[2], receipt) then return {'repeated', time} end
if version ~= known or version == '' and redis.call('EXISTS', record) == 1 then return told('stale') end
if action == 'look' then return told('same') end
local drops = 13 + 2 * ARGV[10]
local answers = drops + ARGV[11]
local at = answers + 2 * ARGV[12]
for i = 13, drops - 1, 2 do
    if redis.call('HEXISTS', record, ARGV[i]) == 1 then return told('stale') end
end
for i = drops, answers - 1 do
    if redis.call('HEXISTS', record, ARGV[i]) == 0 then return told('stale') end
end
if least ~= '' and (redis.call('HGET', record, 'left') or 0) + left < tonumber(least) then return told('stale') end
local repeated = {}
for i = answers, at - 1, 2 do
    if redis.call('HEXISTS', KEYS[4], ARGV[i]) == 1 then repeated[#repeated + 1] = ARGV[i] end
end
if #repeated > 0 then return {'answered', time, repeated} end
for i = answers, at - 1, 2 do
    redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 1])
    if redis.call('RPUSH', KEYS[5], ARGV[i]) > ANSWERS then
        local old = redis.call('LPOP', KEYS[5])
        redis.call('HSET', KEYS[4], old, '')
        if redis.call('RPUSH', KEYS[6], old) > REQUESTS then
            redis.call('HDEL', KEYS[4], redis.call('LPOP', KEYS[6]))
        end
    end
end
for i = 13, drops - 1, 2 do redis.call('HSET', record, ARGV[i], ARGV[i + 1]) end
for i = drops, answers - 1 do redis.call('HDEL', record, ARGV[i]) end
if left ~= '0' then redis.call('HINCRBY', record, 'left', left) end
while at <= #ARGV do
    redis.call(unpack(ARGV, at + 1, at + ARGV[at]))
    at = at + ARGV[at] + 1
end
if receipt ~= '' then
    local now = time[1] * 1000000 + time[2]
    redis.call('ZADD', KEYS[2], now, receipt)
    redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - RECEIPTS)
end
if action == 'add' then
    redis.call('RPUSH', journal, made)
    return told('done')
end
redis.call('LTRIM', journal, lines, -1)
redis.call('HSET', record, 'version', made)
return {'done', time, redis.call('LRANGE', journal, 0, -1)}
"""


@dataclass(frozen=True)
class Seen:
    """The record as it was when it was looked at, or what was new in it.

    Attributes
    ----------
    fields : dict
        Of the record; none if there is no record, or if they are known.
    lines : tuple of Line
        That were added to it; if the fields are known, those that were not.
    lost : bool
        Whether the lease that was asked about is among the lost.
    """

    fields: Mapping[str, bytes] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()
    lost: bool = False

    @property
    def version(self) -> str:
        """Of the record; empty if there is none, or if it is known."""
        return self.fields.get("version", b"").decode()


@dataclass(frozen=True)
class Change:
    """All or nothing of it is carried out.

    Attributes
    ----------
    put : dict
        Fields to set.
    new, drop
        Fields to add, and to delete: if one of the former is there, or one of the latter is not, nothing is done.
    left : int
        By how many more requests of the horizon are left, neither settled nor leased.
    least : int or None
        How many have to be left afterwards, or nothing is done; None if that does not matter.
    commands
        To be carried out besides.
    answers : dict
        To be kept, by the request. If one of the requests has an answer, nothing is done.
    leader : str
        Who must lead, or nothing is done (:mod:`fairsync.coordination.redis.lead`); empty if that does not matter.
    """

    put: Mapping[str, bytes | str | int] = field(default_factory=dict)
    new: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    left: int = 0
    least: int | None = None
    commands: Sequence[Command] = ()
    answers: Mapping[str, bytes] = field(default_factory=dict)
    leader: str = ""


@dataclass(frozen=True)
class Swap:
    """What became of a change.

    Attributes
    ----------
    version : str
        Of the record, if the change was made; otherwise empty.
    lines : tuple of Line
        If it was made: those of the version that were not known. An added line is the last of them, or others that came
        after it.
    newer : Seen or None
        What is new, where another change had come first; None if the receipt is known.
    """

    version: str = ""
    lines: tuple[Line, ...] = ()
    newer: Seen | None = None
