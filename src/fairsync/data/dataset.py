"""A prepared data set: interactions (user, item, time) and attributes of the items, stored as parquet and JSON."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.atomic_write import atomic_folder
from fairsync.catalog import Catalog
from fairsync.catalog.catalog import GROUP
from fairsync.catalog.readers import PREFIX
from fairsync.catalog.series import column_of, series_of
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl
from fairsync.ragged import Ragged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairsync.catalog.attributes import Column

VERSION = 1
"""Version of the format. A folder with another version is refused."""

# Facts that files of an earlier program do not have.
_LATER = {"group_attribute", "bad_items", "first_bad_items", "notes"}
_FILES = {"facts.json", "interactions.parquet", "users.parquet", "items.parquet"}


@dataclass(frozen=True)
class Facts:
    """Size and provenance of a data set: the numbers of the paper's Table 1, and the options of its preparation.

    Attributes
    ----------
    name
        Name of the data set.
    users, items, groups, interactions
        Number of users, items, groups and interactions.
    raw_rows
        Rows read from the source.
    bad_rows
        {reason: number of rows} that could not be used.
    first_bad
        {reason: position in the source} of the first such row.
    left_out
        {reason: number of rows} that are valid but were not wanted. Every row is in use, bad or left out:
        ``raw_rows == interactions + sum(bad_rows.values()) + sum(left_out.values())``.
    least_interactions
        Minimum number of interactions of every user and every item.
    least_items
        Groups with fewer items were merged into one.
    history
        Number of items of a history that models use.
    has_clock
        Whether times are Unix seconds. If not, they are positions in the user's sequence.
    group_attribute
        The name of the attribute that is the group.
    bad_items
        {reason: number of lines} of the table of items that could not be used.
    first_bad_items
        {reason: position in the table} of the first such line.
    notes
        What was read otherwise than it is written, such as another encoding.
    """

    name: str
    users: int
    items: int
    groups: int
    interactions: int
    raw_rows: int = 0
    bad_rows: dict[str, int] = field(default_factory=dict)
    first_bad: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    least_interactions: int = 1
    least_items: int = 1
    history: int = 20
    has_clock: bool = True
    version: int = VERSION
    group_attribute: str = GROUP
    bad_items: dict[str, int] = field(default_factory=dict)
    first_bad_items: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Dataset:
    """Sequences of users over a catalog of items.

    Attributes
    ----------
    facts : Facts
        Numbers and settings.
    user_ids, item_ids : numpy.ndarray
        (n,) str ids of the source. All other arrays refer to rows of these.
    item_groups : numpy.ndarray
        (n_items,) str label of each item's group.
    sequences : Ragged
        The items of each user in order of time.
    times : numpy.ndarray
        int64 time of each entry of ``sequences.items``.
    attributes : dict
        {name: column} of further attributes of the items.
    """

    facts: Facts
    user_ids: NDArray[np.str_]
    item_ids: NDArray[np.str_]
    item_groups: NDArray[np.str_]
    sequences: Ragged
    times: NDArray[np.int64]
    attributes: Mapping[str, Column] = field(default_factory=dict)

    @property
    def n_items(self) -> int:
        """Number of items in the catalog."""
        return len(self.item_ids)

    def catalog(self, embeddings: NDArray[np.floating[Any]]) -> Catalog:
        """Return a catalog of the items with their attributes, given an embedding for each."""
        return Catalog(embeddings, {self.facts.group_attribute: self.item_groups, **self.attributes}, self.item_ids)

    def fingerprint(self) -> str:
        """Return a hash of all interactions. Splits of two data sets with the same fingerprint are the same.

        Groups are not part of it, because models do not depend on them.
        """
        digest = hashlib.sha256()
        for part in (self.sequences.offsets, self.sequences.items, self.times, self.user_ids, self.item_ids):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()[:16]

    def save(self, folder: Path) -> None:
        """Write the data set atomically to a folder. A data set that is already there is replaced.

        Parameters
        ----------
        folder
            Folder to write. A folder with other contents is refused.
        """
        folder = Path(folder).resolve()
        check_target(folder)
        with atomic_folder(folder) as work:
            users = np.repeat(np.arange(len(self.user_ids), dtype=np.int32), self.sequences.lengths)
            visits = {"user": users, "item": self.sequences.items, "time": self.times}
            pl.DataFrame(visits).write_parquet(work / "interactions.parquet")
            pl.DataFrame({"id": self.user_ids}).write_parquet(work / "users.parquet")
            items = {"id": pl.Series(self.item_ids), "group": pl.Series(self.item_groups)}
            items |= {PREFIX + name: series_of(column) for name, column in self.attributes.items()}
            pl.DataFrame(items).write_parquet(work / "items.parquet")
            (work / "facts.json").write_text(json.dumps(asdict(self.facts), indent=2) + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> Dataset:
        """Read a folder that :meth:`save` wrote. Raises :exc:`InvalidInputError` for any other folder."""
        folder = Path(folder)
        facts = _read_facts(folder)
        try:
            visits = pl.read_parquet(folder / "interactions.parquet")
            users = pl.read_parquet(folder / "users.parquet")
            items = pl.read_parquet(folder / "items.parquet")
            user, item, time = (visits[name].to_numpy() for name in ("user", "item", "time"))
            user_ids, item_ids, groups = (
                column.cast(pl.String).to_numpy().astype(str) for column in (users["id"], items["id"], items["group"])
            )
            attributes = {
                name.removeprefix(PREFIX): column_of(name.removeprefix(PREFIX), items[name])
                for name in items.columns
                if name.startswith(PREFIX)
            }
        except (pl.exceptions.PolarsError, OSError) as error:
            raise InvalidInputError(f"{folder} cannot be read ({error}): run 'fairsync prepare' again.") from error
        whole = len(user) == facts.interactions and len(user_ids) == facts.users and len(item_ids) == facts.items
        if whole and len(user):
            whole = bool((np.diff(user) >= 0).all() and user[0] >= 0 and user[-1] < facts.users)
            whole = whole and int(item.min()) >= 0 and int(item.max()) < facts.items
        if not whole:
            raise InvalidInputError(
                f"The files in {folder} do not agree with its facts.json: run 'fairsync prepare' again."
            )
        offsets = np.searchsorted(user, np.arange(facts.users + 1)).astype(np.int64)
        sequences = Ragged(item.astype(np.int32, copy=False), offsets)
        return Dataset(facts, user_ids, item_ids, groups, sequences, time.astype(np.int64, copy=False), attributes)


def check_target(folder: Path) -> None:
    """Refuse a folder that exists and is not a prepared data set."""
    if folder.is_dir():
        names = {path.name for path in folder.iterdir()}
        free = not names or ("facts.json" in names and names <= _FILES)
    else:
        free = not folder.exists()
    if not free:
        raise InvalidInputError(f"{folder} exists and holds something else than a data set: choose another folder.")


def _read_facts(folder: Path) -> Facts:
    path = folder / "facts.json"
    if not path.exists():
        raise InvalidInputError(f"{folder} is not a prepared data set (no facts.json): run 'fairsync prepare' first.")
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        version = read.get("version")
        if version != VERSION:
            raise InvalidInputError(
                f"{path} has version {version}, this program reads {VERSION}: run 'fairsync prepare' again."
            )
        names = [one.name for one in fields(Facts) if one.name in read or one.name not in _LATER]
        return Facts(**{name: read[name] for name in names})
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{path} is damaged ({error}): run 'fairsync prepare' again.") from error
