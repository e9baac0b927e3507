"""``fairsync serve``: run the HTTP service."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from fairsync.errors import MissingPackageError

ConfigFile = Annotated[
    Path,
    typer.Argument(
        help="A TOML file, or the folder of a service. docs/service.md explains every key; deploy/ has examples."
    ),
]
_NEEDED = ("starlette", "uvicorn", "httptools", "msgspec", "prometheus_client")


def serve(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL_OR_CONFIG",
            help="The folder of a model, from 'fairsync train'; or the settings of a service, a TOML file or its"
            " folder. docs/service.md explains every key; deploy/ has examples.",
        ),
    ],
) -> None:
    """Run the service until SIGTERM or SIGINT.

    For a model, its items and settings with defaults are written to services/NAME first, and the settings are shown.
    Settings that are there are kept, so that you can edit them.

        fairsync serve models/completejourney-svd

        fairsync serve deploy/one-process.toml

    Environment variables override the settings: FAIRSYNC_HTTP_PORT=9000 replaces `port` in `[http]`. Check them first
    with `fairsync check`.
    """
    need_service()
    from fairsync.service.run import serve as run
    from fairsync.service.settings import load_settings

    config = settings_file(source)
    if is_model(source):
        from fairsync.service.service_folder import make_service  # it needs polars, which a service need not

        config = make_service(source, Path("services") / source.resolve().name)
        typer.echo(f"{config}:\n\n{config.read_text(encoding='utf-8')}", err=True)
    settings = load_settings(config)
    if is_model(source) and settings.http.port:
        typer.echo(f"Dashboard: http://{settings.http.host}:{settings.http.port}/  Stop: Ctrl-C", err=True)
    run(settings)


def settings_file(path: Path) -> Path:
    """Return the settings in the folder of a service, such as services/NAME, or the file itself."""
    return path / "service.toml" if (path / "service.toml").is_file() else path


def is_model(path: Path) -> bool:
    """Return whether a path is the folder of a model."""
    return (path / "settings.json").is_file()


def need_service() -> None:
    """Raise an error that says what to install if a package of the service is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackageError(f"the service needs {', '.join(missing)}: pip install 'fairsync[service]'.")
