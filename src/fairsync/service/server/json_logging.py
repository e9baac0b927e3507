"""Structured logging: one line of JSON per event."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

log = logging.getLogger("fairsync.service")
_encode = msgspec.json.Encoder(enc_hook=str).encode


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON, with the fields of ``extra={"facts": {...}}``.

    Examples
    --------
    >>> record = logging.LogRecord("fairsync", logging.INFO, "", 0, "started on %s", ("port 80",), None)
    >>> line = msgspec.json.decode(JsonFormatter().format(record))
    >>> line["level"], line["message"]
    ('INFO', 'started on port 80')
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return _encode(line).decode()


def log_call(facts: dict[str, object]) -> None:
    """Write a line of the access log. The place in the source is left out: finding it takes as long as the rest."""
    record = logging.LogRecord(log.name, logging.INFO, "", 0, "call", None, None)
    record.facts = facts
    log.handle(record)


def start_logging(level: int = logging.INFO) -> None:
    """Send all logs to stderr as lines of JSON."""
    # The formatter does not use thread, process and task, and looking them up for each record takes time.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    if hasattr(logging, "logAsyncioTasks"):  # since Python 3.12
        logging.logAsyncioTasks = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
