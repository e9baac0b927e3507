"""``fairsync export``: write the items of a model to a catalog, or those of a service with what the API changed."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated

import typer
from rich.console import Console

from fairsync.cli.serve import need_service, settings_file


def export(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL_OR_CONFIG",
            help="The folder of a model, from 'fairsync train'; or the settings of a service, a TOML file.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", help="A folder, or a file that ends in .parquet. It is replaced atomically."),
    ],
) -> None:
    """Write items to a catalog: id, attributes and embedding, for `serve`, `evaluate` and Python (`open_catalog`).

    The items of a model are those that it was trained on, with its vectors:

        fairsync export models/completejourney-svd --out items

        fairsync export models/completejourney-svd --out items.parquet

    The items of a service include those that were changed through the API. The service may be running. Once its
    `catalog.path` is this folder, the changes are part of the files, and are no longer applied over them at the next
    start. Changes that are made after the export still are.

        fairsync export service.toml --out items
    """
    from fairsync.catalog.files import save_catalog

    config = settings_file(source)
    if config.is_dir():
        from fairsync.models.registry import model_catalog

        catalog, latest = model_catalog(source), None
    else:
        need_service()
        from fairsync.service.catalog_settings import read_items
        from fairsync.service.settings import load_settings

        catalog, latest = read_items(load_settings(config))
    save_catalog(catalog, out, latest)
    Console(soft_wrap=True, highlight=False).print(f"{out}: {catalog!r}.", markup=False)
