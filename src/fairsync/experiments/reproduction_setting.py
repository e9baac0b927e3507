"""What a reproduction is about: which data, which models, which floors."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairsync.data.dataset import Dataset, Facts

PAPER_FLOOR = 200
PAPER_MODELS = ("youtube-dnn", "gru4rec", "mind", "comirec-dr", "comirec-sa")
# The share of all slots at K = 20 that floors of 200 claim in the paper: groups · 200 / (test users · 20). A tenth of
# the users of its Table 1 are test users.
_AMAZON_SHARE = 165 * PAPER_FLOOR / (45_913 * 20)
_TAOBAO_SHARE = 1_246 * PAPER_FLOOR / (97_677 * 20)


@dataclass(frozen=True)
class Setting:
    """The terms that all tables and figures of a reproduction share.

    Attributes
    ----------
    data : str
        Name of the data set.
    fingerprint : str
        Of its contents, see :func:`fingerprint_of`: results on other data are never taken for these.
    models : tuple of str
        Base models of the comparison, the paper's five or others.
    analysed : str
        The base model of the single figures (the paper takes ComiRec-DR).
    seeds : tuple of int
        One trained model of each kind for each.
    floor : int
        Exposures promised to every group.
    ks : tuple of int
        Lengths of candidate lists.
    batch_size : int
        Requests between two price changes, unless a figure varies it.
    quick : bool
        Fewer epochs, grids and points: to see that everything runs, not to quote.
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
        """Return plain values, for JSON and for people."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def paper_floor(facts: Facts, requests: int, groups: int) -> int:
    """Return the floor per group that claims as large a share of all slots as the paper's 200 did.

    Never above 200: where the data are as large as the paper's, it is the paper's floor. Sets of the shape of
    Amazon's (at least 5 interactions of every user and small groups merged below 50 items) follow Amazon-Book, others
    Taobao.

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
    """Return a mark of all that experiments see of a data set.

    More than :meth:`Dataset.fingerprint`, which is a model's view: outcomes also change with the groups, and with the
    length of histories.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.data import Dataset, Facts, Ragged
    >>> taken, names = Ragged(np.array([0, 1], dtype=np.int32), np.array([0, 2])), np.array(["tea", "nut"])
    >>> def dataset(*groups: str) -> Dataset:
    ...     facts = Facts("tiny", users=1, items=2, groups=len(set(groups)), interactions=2)
    ...     return Dataset(facts, np.array(["u"]), names, np.array(groups), taken, times=np.arange(2))
    >>> mark = fingerprint_of(dataset("a", "a"))
    >>> fingerprint_of(dataset("a", "a")) == mark, fingerprint_of(dataset("a", "b")) == mark
    (True, False)
    """
    seen = [dataset.fingerprint(), dataset.facts.history, dataset.item_groups.tolist()]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]
