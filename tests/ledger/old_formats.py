"""Files of earlier formats, as the versions of their time wrote them."""

import sqlite3
from contextlib import closing
from pathlib import Path

FORMAT_1 = """
PRAGMA journal_mode = WAL;
CREATE TABLE horizons (
    number INTEGER PRIMARY KEY, requests INTEGER NOT NULL, relevance REAL NOT NULL, cost REAL, forced INTEGER NOT NULL,
    exposures BLOB NOT NULL
);
CREATE TABLE receipts (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE);
CREATE TABLE kept (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO facts VALUES ('groups', '2');
INSERT INTO horizons VALUES (0, 5, 2.5, NULL, 1, x'03000000000000000700000000000000');
INSERT INTO horizons VALUES (1, 2, 1.5, 0.25, 0, x'01000000000000000200000000000000');
INSERT INTO receipts (key) VALUES ('lease 7');
INSERT INTO receipts (key) VALUES ('lease 9');
DELETE FROM receipts WHERE key = 'lease 9';
INSERT INTO kept VALUES ('policy guaranteed', x'0102');
PRAGMA user_version = 1;
"""

# Files of format 1 were also written with what is new in format 2.
LATE = """
ALTER TABLE horizons RENAME TO old;
CREATE TABLE horizons (
    number INTEGER PRIMARY KEY, requests INTEGER NOT NULL, relevance REAL NOT NULL, cost REAL, forced INTEGER NOT NULL,
    began REAL NOT NULL, exposures BLOB NOT NULL, shown BLOB
);
INSERT INTO horizons SELECT number, requests, relevance, cost, forced, 60.5 * number, exposures, exposures FROM old;
DROP TABLE old;
CREATE TABLE answers (number INTEGER PRIMARY KEY AUTOINCREMENT, request TEXT NOT NULL UNIQUE, answer BLOB NOT NULL);
INSERT INTO answers (request, answer) VALUES ('r0', x'');
INSERT INTO answers (request, answer) VALUES ('r1', x'09');
"""

# Format 2 as made from format 1, with columns in another order, and as made at once.
FORMAT_2_MIGRATED = f"""{FORMAT_1}
ALTER TABLE horizons ADD COLUMN began REAL NOT NULL DEFAULT 0;
ALTER TABLE horizons ADD COLUMN shown BLOB;
UPDATE horizons SET began = 60.5 * number, shown = exposures;
CREATE TABLE answers (number INTEGER PRIMARY KEY AUTOINCREMENT, request TEXT NOT NULL UNIQUE, answer BLOB NOT NULL);
INSERT INTO answers (request, answer) VALUES ('r0', x'');
INSERT INTO answers (request, answer) VALUES ('r1', x'09');
PRAGMA user_version = 2;
"""
OLD = {
    "1": FORMAT_1,
    "1 late": FORMAT_1 + LATE,
    "2": FORMAT_1 + LATE + "PRAGMA user_version = 2;",
    "2 migrated": FORMAT_2_MIGRATED,
}


def write_old(path: Path, *scripts: str) -> Path:
    """Write a file by SQL."""
    with closing(sqlite3.connect(path)) as db:
        for script in scripts:
            db.executescript(script)
    return path
