-- The tables of a ledger, in SQLite and in Postgres. {serial}, {integer}, {real} and {bytes} stand for the types of each.

-- The format of these tables in Postgres ('format'), and the number of changes of a shared promise ('terms').
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);

-- The totals of each horizon, without the entries below. Counts are arrays of 64-bit integers, one per group.
CREATE TABLE horizons (
    number {integer} PRIMARY KEY,
    requests {integer} NOT NULL,
    relevance {real} NOT NULL,
    cost {real},
    forced {integer} NOT NULL,
    began {real} NOT NULL,
    exposures {bytes} NOT NULL,
    impressions {bytes}
);

-- The latest entries of the horizon under way. Now and then they are added to its totals.
CREATE TABLE entries (
    number {serial},
    requests {integer} NOT NULL,
    relevance {real} NOT NULL,
    cost {real},
    forced {integer} NOT NULL,
    exposures {bytes} NOT NULL,
    impressions {bytes}
);

-- Idempotency keys of entries that were recorded.
CREATE TABLE keys (number {serial}, key TEXT NOT NULL UNIQUE, recorded_at {real} NOT NULL);

-- Answers by request id, and the ids of requests whose answer is no longer saved.
CREATE TABLE answers (
    number {serial},
    request_id TEXT NOT NULL UNIQUE,
    answer {bytes} NOT NULL,
    answered_at {real} NOT NULL
);
CREATE TABLE expired_answers (number {serial}, request_id TEXT NOT NULL UNIQUE);

-- Open leases. A lease without a row was settled, released, or has expired.
CREATE TABLE leases (
    number {integer} PRIMARY KEY,
    requests {integer} NOT NULL,
    expires_at {real} NOT NULL,
    replica TEXT NOT NULL
);

-- Values saved beside the record: states of policies and of the service.
CREATE TABLE saved (name TEXT PRIMARY KEY, value {bytes} NOT NULL);

-- Items that were changed since the catalog's files were written. Id and label are JSON; no embedding: it was removed.
CREATE TABLE items (
    number {serial},
    id TEXT NOT NULL UNIQUE,
    label TEXT,
    embedding {bytes},
    changed_at {real} NOT NULL
);
