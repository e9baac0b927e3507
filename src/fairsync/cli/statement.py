"""``fairsync statement``: what a provider was promised in a month, and what it got, as HTML and CSV."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fairsync.atomic_write import atomic_file
from fairsync.errors import InvalidInputError
from fairsync.extras import explain_missing

TOKEN = "FAIRSYNC_TOKEN"


def statement(
    url: Annotated[str, typer.Argument(help="URL of the service, such as http://127.0.0.1:8080.")],
    attribute: Annotated[str, typer.Option("--attribute", help="Attribute that promises name, such as provider.")],
    label: Annotated[str, typer.Option("--label", help="Label of the attribute, such as acme.")],
    month: Annotated[str, typer.Option("--month", help="Year and month, such as 2026-11.")],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the two files. Files of the same names are replaced.")
    ] = Path(),
) -> None:
    """Write a statement for a provider: what was promised and delivered per window, and what was missed and why.

    Writes LABEL-MONTH.html, which can be printed, and LABEL-MONTH.csv, with one line per window.

        fairsync statement http://127.0.0.1:8080 --attribute provider --label acme --month 2026-11

    A window belongs to the month in which it ended. If the service has tokens, the environment variable FAIRSYNC_TOKEN
    holds one with the role `report`.
    """
    with explain_missing("fairsync statement"):
        from fairsync.service.client import Client
        from fairsync.service.statement_files import statement_csv, statement_html

    if not out.is_dir():
        raise InvalidInputError(f"{out} is no folder: make it first, or choose another one with --out.")
    with Client(url, os.environ.get(TOKEN) or None) as client:
        found = client.statement(attribute, label, month)
    name = f"{re.sub(r'[^A-Za-z0-9._-]+', '_', str(found.label)).strip('.') or 'statement'}-{found.month}"
    files = {f"{name}.html": statement_html(found), f"{name}.csv": "\ufeff" + statement_csv(found)}
    for file, text in files.items():
        with atomic_file(out / file) as part:
            part.write_bytes(text.encode())
    screen = Console(soft_wrap=True, highlight=False)
    kept = sum(row.kept for row in found.rows)
    screen.print(
        f"{attribute} {found.label}, {found.month}: {kept:,} of {len(found.rows):,} windows kept.", markup=False
    )
    for remark in found.remarks:
        screen.print(remark, style="yellow", markup=False)
    for file in files:
        screen.print(str(out / file), markup=False)
