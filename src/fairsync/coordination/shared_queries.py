"""Queries of coordinators that share a ledger in Postgres: the state of counts and leases, and grants."""

from fairsync.ledger.rows import LATEST

# A row of a lease that was closed is used by another coordinator if its own has not used it for this long.
_UNUSED_SECONDS = 60.0
# In the last column of the rows of a state: a lease that is open, one that has expired, a row for a new one, a row that
# another coordinator uses again, the number of the terms; and what a grant at once has done.
OPEN, EXPIRED, FREE, USED, TERMS_NUMBER, GRANTED = -2.0, -3.0, -4.0, -5.0, -6.0, -7.0
STATE = f"""
{LATEST}
UNION ALL SELECT number, requests, CASE WHEN replica = :replica THEN 1.0 ELSE 0.0 END, NULL, slot, NULL, NULL,
CASE WHEN requests = 0 AND (replica = :replica OR expires_at < {{now}} - {_UNUSED_SECONDS}) THEN {FREE}
WHEN requests = 0 THEN {USED} WHEN expires_at <= {{now}} OR number = :retried THEN {EXPIRED} ELSE {OPEN} END
FROM leases
UNION ALL SELECT value::bigint, 0, 0.0, NULL, 0, NULL, NULL, {TERMS_NUMBER} FROM facts WHERE name = 'terms'
"""
GRANT = """
UPDATE leases SET number = :number, requests = :requests, expires_at = {now} + :seconds, replica = :replica
WHERE slot = :slot
"""
GRANT_IN_NEW_ROW = """
INSERT INTO leases (number, requests, expires_at, replica) VALUES (:number, :requests, {now} + :seconds, :replica)
"""
# Grants a lease unless the limit is exceeded, and returns the state before it. It is not flushed to the disk.
GRANT_AT_ONCE = f"""
WITH granted AS (
    UPDATE grants SET requests = requests + :requests
    WHERE horizon = :horizon AND terms = :terms AND requests + :requests <= :most
    AND NOT EXISTS (SELECT FROM leases WHERE requests > 0 AND expires_at <= {{now}}) RETURNING requests
), leased AS (
    UPDATE leases SET number = :number, requests = :requests, expires_at = {{now}} + :seconds
    WHERE slot = :slot AND replica = :replica AND requests = 0 AND EXISTS (SELECT FROM granted) RETURNING slot
)
{STATE}
UNION ALL SELECT granted.requests, 0, 0.0, NULL, leased.slot, NULL, NULL, {GRANTED}
FROM granted, leased, set_config('synchronous_commit', 'off', true)
"""
SET_GRANTS = """
INSERT INTO grants VALUES (1, :horizon, :terms, :requests)
ON CONFLICT (id) DO UPDATE SET horizon = excluded.horizon, terms = excluded.terms, requests = excluded.requests
"""
CLOSE = "UPDATE leases SET requests = 0 WHERE number = :number AND requests > 0"
