"""Check the setting of a reproduction before anything is computed."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.models import MissingTorchError, NetworkSettings, make_settings
from fairsync.promises.floors import check_feasible, resolve_floors

if TYPE_CHECKING:
    from collections.abc import Collection

    from fairsync.data.dataset import Dataset
    from fairsync.data.splits import Split
    from fairsync.experiments.reproduction_setting import Setting


def check_setting(setting: Setting, dataset: Dataset, split: Split, models: Collection[str]) -> None:
    """Raise an error unless the base models can be trained and the floors are feasible for every k.

    Parameters
    ----------
    setting
        The setting of the reproduction.
    dataset, split
        The data and their split.
    models
        Names of the required base models.
    """
    kinds = {name: make_settings(name, seed=seed) for name in sorted(models) for seed in setting.seeds}
    networks = [name for name, kind in kinds.items() if isinstance(kind, NetworkSettings)]
    if networks and importlib.util.find_spec("torch") is None:
        raise MissingTorchError(
            f"{', '.join(networks)}: torch is not installed. pip install 'fairsync[models]', or take a model that does"
            " without (--model svd)."
        )
    for name, part in (("validation", split.validation), ("test", split.test)):
        if len(part) == 0:
            raise InvalidInputError(f"{setting.data} has no {name} requests: give a data set with more users.")
    # The feasibility of floors does not depend on vectors.
    catalog = Catalog(np.ones((dataset.n_items, 1), dtype=np.float32), dataset.item_groups, dataset.item_ids)
    for k in setting.ks:
        if not 1 <= k <= len(catalog):
            raise InvalidInputError(f"K = {k} of {len(catalog)} items: choose from 1 to {len(catalog)} (--k).")
        check_feasible(resolve_floors(setting.floor, catalog), catalog, k, len(split.test))
