"""A configuration of the service, and the files that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.catalog.files import save_catalog
from service.running import small_catalog
from service.service_process import WINDOW

if TYPE_CHECKING:
    from pathlib import Path

    from postgres_server import PostgresServer

PROMISES = f'[[promises]]\ngroup = "wine"\nfloor = 500\nwindow = {WINDOW}\n'


def configured(folder: Path, more: str = "", *, port: int = 0) -> Path:
    """Write a small catalog and a configuration."""
    if not (folder / "items").exists():
        save_catalog(small_catalog(), folder / "items")
    path = folder / "service.toml"
    path.write_text(
        f'[catalog]\npath = "items"\n[promise]\nk = 3\n[ledger]\nurl = "sqlite:///exposures.db"\n'
        f"[traffic]\nper_second = 1\n[http]\nport = {port}\n{more}"
    )
    return path


def over_postgres(config: Path, server: PostgresServer) -> Path:
    """Change a configuration to a ledger in Postgres."""
    config.write_text(config.read_text().replace("sqlite:///exposures.db", server.schema("shop")))
    return config
