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

-- What the processes that share a ledger have counted in the horizon under way: one row each, which only it changes. They
-- are added to the totals when the horizon ends.
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

-- Open leases, and rows for later ones: a lease without requests was settled, released, or has expired. Rows are reused,
-- because reading past deleted ones would take longer and longer. So there is no index on the number either.
CREATE TABLE leases (
    slot {serial},
    number {integer} NOT NULL,
    requests {integer} NOT NULL,
    expires_at {real} NOT NULL,
    replica TEXT NOT NULL
);

-- One row: the requests of the horizon under way that were leased so far, or more, and under which terms. It is the limit of
-- leases that are granted side by side.
CREATE TABLE grants (
    id {integer} PRIMARY KEY,
    horizon {integer} NOT NULL,
    terms {integer} NOT NULL,
    requests {integer} NOT NULL
);

-- Values saved beside the record: states of policies and of the service.
CREATE TABLE saved (name TEXT PRIMARY KEY, value {bytes} NOT NULL);

-- Items that were changed through the API since the catalog's files were written. Ids are JSON, and attributes are a JSON
-- object, with the group under the name of its attribute. An item without attributes was removed. One without an embedding
-- has other attributes than the files, and their embedding. "catalog" is the fingerprint of the files at the time.
CREATE TABLE items (
    number {serial},
    id TEXT NOT NULL UNIQUE,
    attributes TEXT,
    embedding {bytes},
    catalog TEXT NOT NULL,
    changed_at {real} NOT NULL
);

-- What was done to promises, and by whom. Records are JSON. Numbers have no gaps, each digest is made of the one before and
-- of the record, and the fact 'audit' has the last number and digest: so a change, a gap and a missing end are noticed.
-- Rows can only be added: triggers refuse everything else.
CREATE TABLE audit (
    number {integer} PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    record TEXT NOT NULL,
    digest TEXT NOT NULL
);
