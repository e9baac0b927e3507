"""A laboratory whose groups differ: one holds half of the items, twelve have four each. Floors are felt there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fairsync.experiments.base_models import BaseModels
from fairsync.experiments.experiment import Lab
from fairsync.experiments.reproduction_setting import Setting
from fairsync.experiments.store import Store
from fairsync.experiments.trials import Trials
from tastes import tasteful


def uneven_lab(setting: Setting, folder: Path, **changes: Any) -> Lab:
    """Return a laboratory with 200 test requests: enough for differences to be significant."""
    dataset = tasteful(2_000)
    groups = np.array(["half" if item < 48 else f"small-{item // 4}" for item in range(96)])
    dataset = replace(dataset, item_groups=groups, facts=replace(dataset.facts, groups=13))
    terms = replace(setting, fingerprint=dataset.fingerprint(), **changes)
    return Lab(terms, dataset, Trials(terms, BaseModels(dataset, folder / "models"), Store(folder / "cells")))
