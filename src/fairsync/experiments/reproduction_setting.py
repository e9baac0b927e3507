"""The setting of a reproduction: data, models, floors, numbers of candidates and batch size."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.models import MissingTorchError, NetworkSettings, make_settings
from fairsync.promises.floors import check_feasible, resolve_floors

if TYPE_CHECKING:
    from collections.abc import Collection

    from fairsync.data.dataset import Dataset, Facts
    from fairsync.data.splits import Split

PAPER_FLOOR = 200
PAPER_MODELS = ("youtube-dnn", "gru4rec", "mind", "comirec-dr", "comirec-sa")
# The share of all slots at K = 20 that floors of 200 claim in the paper: groups · 200 / (test users · 20). A tenth of
# the users of its Table 1 are test users.
_AMAZON_SHARE = 165 * PAPER_FLOOR / (45_913 * 20)
_TAOBAO_SHARE = 1_246 * PAPER_FLOOR / (97_677 * 20)


@dataclass(frozen=True)
class Setting:
    """The setting that all tables and figures of a reproduction share.

    Attributes
    ----------
    data : str
        Name of the data set.
    fingerprint : str
        Fingerprint of the data set; see :func:`fingerprint_of`. Stored results of other data are not used.
    models : tuple of str
        Base models of the comparison.
    analysed : str
        Base model of the single figures (ComiRec-DR in the paper).
    seeds : tuple of int
        Random seeds. Each base model is trained once for each seed.
    floor : int
        Exposures promised to every group.
    ks : tuple of int
        Numbers of candidates per request.
    batch_size : int
        Requests between two price changes, unless a figure varies it.
    quick : bool
        Whether to use fewer epochs, grids and points: a smoke test, not to be quoted.
    """

    data: str
    fingerprint: str
    models: tuple[str, ...] = PAPER_MODELS
    analysed: str = "comirec-dr"
    seeds: tuple[int, ...] = (0,)
    floor: int = PAPER_FLOOR
    ks: tuple[int, ...] = (20, 50)
    batch_size: int = 16
    quick: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def paper_floor(facts: Facts, requests: int, groups: int) -> int:
    """Return the floor per group that claims the same share of all slots as the paper's 200, and at most 200.

    Data sets prepared like Amazon's (groups below 50 items merged) follow Amazon-Book, others follow Taobao.

    Examples
    --------
    >>> from fairsync.data import Facts
    >>> book = Facts("books", users=459_133, items=313_966, groups=165, interactions=8_898_041, least_items=50)
    >>> paper_floor(book, requests=45_913, groups=165)
    200
    >>> paper_floor(book, requests=2_237, groups=65)
    25
    """
    share = _AMAZON_SHARE if facts.least_items == 50 else _TAOBAO_SHARE
    return max(1, min(PAPER_FLOOR, round(share * requests * 20 / groups)))


def fingerprint_of(dataset: Dataset) -> str:
    """Return a hash of everything in a data set that outcomes of experiments depend on.

    Unlike :meth:`Dataset.fingerprint`, it includes the groups and the length of histories.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.data import Dataset, Facts, Ragged
    >>> taken, names = Ragged(np.array([0, 1], dtype=np.int32), np.array([0, 2])), np.array(["tea", "nut"])
    >>> def dataset(*groups: str) -> Dataset:
    ...     facts = Facts("tiny", users=1, items=2, groups=len(set(groups)), interactions=2)
    ...     return Dataset(facts, np.array(["u"]), names, np.array(groups), taken, times=np.arange(2))
    >>> first = fingerprint_of(dataset("a", "a"))
    >>> fingerprint_of(dataset("a", "a")) == first, fingerprint_of(dataset("a", "b")) == first
    (True, False)
    """
    seen = [dataset.fingerprint(), dataset.facts.history, dataset.item_groups.tolist()]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]


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
