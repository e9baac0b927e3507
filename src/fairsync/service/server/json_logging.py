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
        """Return the line, or the lines of the calls of a record of the access log."""
        calls: list[dict[str, Any]] | None = getattr(record, "calls", None)
        if calls is not None:
            head = {"level": record.levelname, "logger": record.name, "message": record.msg}
            return "\n".join(
                _encode({**call, "time": datetime.fromtimestamp(call["time"], UTC), **head}).decode() for call in calls
            )
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


def log_calls(calls: list[dict[str, object]]) -> None:
    """Write lines of the access log, as one record: a record per line takes longer than the rest of the line.

    Parameters
    ----------
    calls
        The facts of each call, with the time of its end as seconds since 1970.
    """
    record = logging.LogRecord(log.name, logging.INFO, "", 0, "call", None, None)
    record.calls = calls
    if log.isEnabledFor(logging.INFO):
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
