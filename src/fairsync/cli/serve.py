"""``fairsync serve``: run the HTTP service."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from fairsync.errors import InvalidInputError

ConfigFile = Annotated[
    Path, typer.Argument(help="A TOML file. docs/service.md explains every key; deploy/ has examples.")
]
_NEEDED = ("starlette", "uvicorn", "httptools", "msgspec", "prometheus_client")


def serve(config: ConfigFile) -> None:
    """Run the service until SIGTERM or SIGINT.

    fairsync serve deploy/one-process.toml

    Environment variables override the file: FAIRSYNC_HTTP_PORT=9000 replaces `port` in `[http]`. Check a configuration
    first with `fairsync check`.
    """
    need_service()
    from fairsync.service.run import serve as run
    from fairsync.service.settings import load_settings

    run(load_settings(config))


def need_service() -> None:
    """Raise an error that says what to install if a package of the service is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidInputError(f"the service needs {', '.join(missing)}: pip install 'fairsync[service]'.")
