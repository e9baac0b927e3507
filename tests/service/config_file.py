"""A configuration of the service, and the files that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.catalog.files import save_catalog
from service.running import small_catalog

if TYPE_CHECKING:
    from pathlib import Path

    from coordination.valkey_server import ValkeyServer

PROMISES = '[[promises]]\ngroup = "wine"\nfloor = 500\nwindow = {every = "day"}\n'


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


def over_redis(config: Path, server: ValkeyServer) -> Path:
    """Change a configuration to a ledger on a Redis server."""
    ledger = f'kind = "redis"\nurl = "{server.url}"\nname = "shop"'
    config.write_text(config.read_text().replace('url = "sqlite:///exposures.db"', ledger))
    return config
