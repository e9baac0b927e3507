"""``fairsync export``: write the items of a service to catalog files, with what was changed through the API."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated

import typer
from rich.console import Console

from fairsync.cli.serve import ConfigFile, need_service


def export(
    config: ConfigFile,
    out: Annotated[
        Path, typer.Option("--out", file_okay=False, help="The folder to write. It is replaced atomically.")
    ],
) -> None:
    """Write the items of a service to a folder, with those that were changed through the API.

    The service may be running. Once its `catalog.path` is this folder, the changes are part of the files, and are no
    longer applied over them at the next start. Changes that are made after the export still are.

    fairsync export service.toml --out items
    """
    need_service()
    from fairsync.catalog.files import save_catalog
    from fairsync.service.export import read_items
    from fairsync.service.settings import load_settings

    catalog, latest = read_items(load_settings(config))
    save_catalog(catalog, out, latest)
    Console(soft_wrap=True, highlight=False).print(f"{out}: {catalog!r}.", markup=False)
