"""One line of JSON per event, for machines to read."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

log = logging.getLogger("fairsync.service")


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON; what is given as ``extra={"facts": {...}}`` stands in it by name.

    Examples
    --------
    >>> record = logging.LogRecord("fairsync", logging.INFO, "", 0, "started on %s", ("port 80",), None)
    >>> line = orjson.loads(JsonLines().format(record))
    >>> line["level"], line["message"]
    ('INFO', 'started on port 80')
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": moment, "level": record.levelname, "logger": record.name}
        line["message"] = record.getMessage()
        line |= getattr(record, "facts", {})
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        # Keys and words come from anywhere: what JSON cannot say must not stop the line.
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def start_logs(level: int = logging.INFO) -> None:
    """Send all logs to stderr as lines of JSON."""
    # Nobody reads which thread, process, task and line of source a record came from, and finding out takes time.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # as Python's logging HOWTO has it
    if hasattr(logging, "logAsyncioTasks"):  # since Python 3.12
        logging.logAsyncioTasks = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("uvicorn.access").disabled = True  # the gate writes its own lines
