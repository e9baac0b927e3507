"""The folder of a service: its catalog and its settings, with defaults, from a trained model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fairsync.catalog.files import Fingerprint, open_catalog, save_catalog
from fairsync.errors import InvalidInputError
from fairsync.models.folder import read_model_folder
from fairsync.models.registry import model_catalog
from fairsync.service.settings import HttpSettings, PromiseSettings, TrafficSettings

if TYPE_CHECKING:
    from fairsync.catalog import Catalog

SETTINGS = "service.toml"
"""The name of the file of settings in the folder of a service."""

_ITEMS = "items"


def make_service(model: Path, folder: Path) -> Path:
    """Make the folder of a service that answers histories with a model, and return the path of its settings.

    The folder gets ``service.toml`` with defaults and ``items``, the catalog of the model; the ledger will be there,
    too. Settings that are there already are kept. The catalog is written again if the model has changed since.

    Parameters
    ----------
    model
        Folder of a model that ``fairsync train`` wrote.
    folder
        Folder of the service.
    """
    path, items = folder / SETTINGS, folder / _ITEMS
    if folder.exists() and not path.is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInputError(f"{folder} exists and is no service (no {SETTINGS}): move it away.")
    catalog = model_catalog(model)
    if not items.exists() or open_catalog(items).fingerprint != Fingerprint.of(catalog):
        save_catalog(catalog, items)
    if not path.exists():
        history = read_model_folder(model).settings.history
        path.write_text(_settings(catalog, history, model, folder), encoding="utf-8")
    return path


def _settings(catalog: Catalog, history: int, model: Path, folder: Path) -> str:
    """Return the settings as TOML, with a comment for each key."""
    promise, traffic, http = PromiseSettings(), TrafficSettings(), HttpSettings()
    k = min(promise.k, len(catalog))
    where = os.path.relpath(model.resolve(), folder.resolve())
    label = json.dumps(catalog.labels[0], ensure_ascii=False)
    return f"""# Made by 'fairsync serve {model}'. Edit it and start again; docs/service.md explains every key.

[catalog]
path = "{_ITEMS}"  # id, attributes and embedding of every item

[model]
path = {json.dumps(Path(where).as_posix(), ensure_ascii=False)}  # turns histories into vectors

[promise]
k = {k}  # candidates per request
max_exclude = {max(min(history, len(catalog) - k), 0)}  # items of a history that a request leaves out, at most

[traffic]
per_second = {traffic.per_second}  # requests that are expected before any were observed

[ledger]
url = "sqlite:///exposures.db"

[http]
host = "{http.host}"  # others can reach it only with [[tokens]]
port = {http.port}

# A promise. Promises can also be made on the dashboard, or with POST /v1/promises.
# [[promises]]
# group = {label}
# floor = 100
# window = {{ every = "day", zone = "UTC" }}
"""
