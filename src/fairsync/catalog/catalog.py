"""The items that can be retrieved: an embedding, attributes and an id for each."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fairsync.catalog.arrays import DataFrame, to_array, to_columns, to_unit_length
from fairsync.catalog.attributes import (
    AttributeLabel,
    Column,
    LabelColumn,
    ListColumn,
    first_without_label,
    make_column,
)
from fairsync.catalog.condition_cache import ConditionCache
from fairsync.catalog.conditions import ITEM_ID, IdColumn, Where
from fairsync.catalog.groups import Groups, Label
from fairsync.catalog.names import are_words, check_names, check_same_kind, is_name, plain_words, words_array
from fairsync.catalog.row_lookup import RowLookup
from fairsync.catalog.selection import Selection
from fairsync.errors import InvalidInputError, UnknownGroupError
from fairsync.text import count

# Engines and indexes hold vectors as float32, which ends at 3.4e38. Up to this, sums of relevance stay far below the
# end of float64, too: a trillion inner products of two such vectors come to less than 1e100.
LARGEST_VALUE = 1e38
# Checks go through the embeddings in blocks, so that they never need a second copy of them.
_BLOCK_VALUES = 1 << 20

_Array = TypeVar("_Array", bound=npt.NDArray[Any])


GROUP = "group"
"""The name of the attribute that is given as a list of labels."""

# The group of all items, if no attribute can be the group.
_ONE_GROUP = "all"
# The group of a catalog whose groups are atoms: no attribute that a caller can name.
_ATOM = "(atom)"
# What is computed from the group of every item.
_BY_GROUP = ("groups", "rows_by_group", "_groups_with_rows")


class Catalog:
    """Items with their embeddings, attributes and ids.

    The first attribute with one str or int per item is the group of an item: promises are made for groups, and a group
    has a price. The other attributes are for conditions (`select`), and for promises that may overlap. Where no
    attribute has one str or int per item, all items are one group, ``"all"`` of the attribute ``"group"``.

    Parameters
    ----------
    embeddings
        (n, d) array of float16, float32 or float64. A C-contiguous array is used in place: do not write to it later.
        A torch tensor is taken as it is (bfloat16 becomes float32), and so is a column of lists of polars or pandas.
    groups
        n group labels, one per item, all str or all int: the attribute ``"group"``. Or a dict of named attributes, each
        of them n labels (all str, all int or all bool), n lists of labels, or n floats; or a data frame of polars,
        pandas or pyarrow with a column for each attribute. An item whose value is missing (None, NaN) has no label;
        the group of an item and numbers cannot be missing. Control characters are refused.
    ids
        n distinct item ids, all str or all int, without control characters. Defaults to the row numbers.
    normalize
        Whether relevance is the cosine: items are then stored with length 1, and user vectors are divided by their
        length when requests arrive. By default relevance is the inner product of the vectors as they are.

    Attributes
    ----------
    embeddings : numpy.ndarray
        Read-only view of the embeddings.
    group_attribute : str
        The name of the attribute that is the group.
    group_of : numpy.ndarray
        (n,) int32, the code of each item's group: its position in ``labels``.
    labels : list
        The group labels as plain Python values: sorted, followed by labels added later (`fairsync.catalog.changes`).
    group_sizes : numpy.ndarray
        (G,) int64, the number of items of each group.
    normalized : bool
        Whether relevance is the cosine.
    rank : numpy.ndarray or None
        Position of each item in the order of ids, which settles ties; None when that is the row number.

    Examples
    --------
    >>> import numpy as np
    >>> catalog = Catalog(np.eye(3, dtype=np.float32), ["toys", "books", "toys"], ids=["c", "a", "b"])
    >>> catalog
    Catalog(3 items, 2 groups, dim 3, float32)
    >>> catalog.labels, catalog.group_of.tolist(), catalog.group_sizes.tolist()
    (['books', 'toys'], [1, 0, 1], [1, 2])
    >>> catalog.ids_of([2, 0]).tolist(), catalog.code_of("toys")
    (['b', 'c'], 1)
    >>> catalog = Catalog(np.eye(3), {"category": ["toys", "books", "toys"], "price": [9.5, 3.0, 4.0]})
    >>> catalog.labels, catalog.select({"category": "toys", "price": {"at_most": 5}}).rows.tolist()
    (['books', 'toys'], [2])
    >>> Catalog([[3.0, 4.0]], ["toys"], normalize=True).embeddings.tolist()
    [[0.6, 0.8]]
    """

    _ungrouped: "Catalog | None" = None
    rarity: npt.NDArray[np.float64] | None = None
    weights: npt.NDArray[np.int64] | None = None
    """The number of items that each row stands for; None if a row is an item."""

    def __init__(
        self,
        embeddings: npt.ArrayLike,
        groups: Sequence[Label] | npt.NDArray[Any] | Mapping[str, Any] | DataFrame,
        ids: Sequence[Label] | npt.NDArray[Any] | None = None,
        *,
        normalize: bool = False,
    ) -> None:
        self.embeddings = _checked_embeddings(embeddings)
        self.normalized = bool(normalize)
        if normalize:
            self.embeddings = _frozen(to_unit_length(self.embeddings))
        n = len(self.embeddings)
        self.group_attribute: str = GROUP
        self._others: dict[str, Column] = {}
        groups = to_columns(groups)
        if isinstance(groups, Mapping):
            self.group_attribute, groups, self._others = _split_attributes(groups, n)
        names, codes, sizes = np.unique(
            check_names(groups, n, "groups", "label"), return_inverse=True, return_counts=True
        )
        self.labels: list[Label] = names.tolist()
        self._names: npt.NDArray[Any] = _names(self.labels)
        self.group_of: npt.NDArray[np.int32] = _frozen(codes.astype(np.int32))
        self.group_sizes: npt.NDArray[np.int64] = _frozen(sizes.astype(np.int64))
        self._ids: npt.NDArray[Any] | None = None
        self.rank: npt.NDArray[np.int32] | npt.NDArray[np.int64] | None = None
        if ids is not None:
            self._ids = _frozen(check_names(ids, n, "ids", "id"))
            self.rank = _rank(self._ids)

    @property
    def ids(self) -> npt.NDArray[Any]:
        """The n item ids, in row order (computed on the fly when they are the row numbers).

        Words are Python strings in an array of objects if a few long ones would make any other array large.
        """
        return np.arange(len(self), dtype=np.int64) if self._ids is None else self._ids

    @property
    def ids_are_words(self) -> bool:
        """Whether the ids are words, not numbers."""
        return self._ids is not None and are_words(self._ids)

    @property
    def n_rows(self) -> int:
        """Number of rows: that of the items, if each row is an item."""
        return len(self.group_of)

    @cached_property
    def mean_embedding(self) -> npt.NDArray[np.float64]:
        """(d,) the mean of the embeddings."""
        return np.asarray(np.asarray(self.embeddings).mean(axis=0, dtype=np.float64))

    @property
    def dim(self) -> int:
        """Number of dimensions of an embedding."""
        return int(self.embeddings.shape[1])

    @cached_property
    def attributes(self) -> dict[str, Column]:
        """The attributes by name, the group first."""
        labels: list[AttributeLabel] = [*self.labels]
        return {self.group_attribute: LabelColumn(self.group_of, labels), **self._others}

    @cached_property
    def conditions(self) -> ConditionCache:
        """The conditions that were used last, with the items that meet them."""
        return ConditionCache({**self.condition_columns, **self.attributes})

    @cached_property
    def _lookup(self) -> RowLookup:
        assert self._ids is not None
        return RowLookup(self._ids)

    def select(self, where: Where) -> Selection | None:
        """Return the items that meet conditions on attributes; None where there is no condition.

        Parameters
        ----------
        where
            The conditions by attribute, all of which an item must meet: a value; a list of values, of which it must
            have one; ``{"not": value or list}``; or for numbers a range, ``{"at_least": number, "at_most": number}``.
            An item with several labels has each of them. ``"id"`` names items by their ids, as an attribute would.

        Examples
        --------
        >>> catalog = Catalog(np.eye(3), {"region": ["DE", "AT", "CH"], "tags": [["new"], [], ["new", "sale"]]})
        >>> catalog.select({"region": ["DE", "AT"]}).rows.tolist()
        [0, 1]
        >>> catalog.select({"region": {"not": "AT"}, "tags": "new"}).rows.tolist()
        [0, 2]
        >>> catalog.select({"id": {"not": 1}}).rows.tolist()
        [0, 2]
        """
        return self.conditions.select(where)

    @property
    def conditioned_attributes(self) -> "dict[str, Column]":
        """The attributes that conditions can speak of: all but the atoms, if these are the groups."""
        return {name: column for name, column in self.attributes.items() if name != _ATOM}

    @property
    def condition_columns(self) -> "dict[str, Column | IdColumn]":
        """What conditions can speak of: attributes, and the ids of items, unless a row stands for several items."""
        columns: dict[str, Column | IdColumn] = {**self.conditioned_attributes}
        if self.weights is None:
            ids = IdColumn("str" if self.ids_are_words else "int", self.rows_of, self.n_rows)
            columns.setdefault(ITEM_ID, ids)
        return columns

    @cached_property
    def rows_by_group(self) -> npt.NDArray[np.signedinteger]:
        """The rows of all items, group by group, and in each group in ascending order."""
        few = self.n_groups <= np.iinfo(np.uint16).max  # sorted by counting
        kind = np.int32 if self.n_rows < np.iinfo(np.int32).max else np.int64
        return np.argsort(self.group_of.astype(np.uint16) if few else self.group_of, kind="stable").astype(kind)

    @cached_property
    def _groups_with_rows(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The groups that have rows, and where those begin in `rows_by_group`."""
        sizes = np.bincount(self.group_of, minlength=self.n_groups)
        groups = np.flatnonzero(sizes)
        return groups, (np.cumsum(sizes) - sizes)[groups]

    def group_sizes_of(self, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Return (G,) the number of items of each group among those where the mask, (rows,), is True.

        Examples
        --------
        >>> Catalog(np.eye(3), ["a", "b", "a"]).group_sizes_of(np.array([True, False, True])).tolist()
        [2, 0]
        """
        groups, starts = self._groups_with_rows
        sizes = np.zeros(self.n_groups, dtype=np.int64)
        # In the order of groups this takes a tenth of the time of `bincount`, which waits for each sum to be written.
        sizes[groups] = np.add.reduceat(mask.take(self.rows_by_group).view(np.int8), starts, dtype=np.int32)
        return sizes

    def with_attributes(self, columns: Mapping[str, Column]) -> "Catalog":
        """Return the same items with other columns for some attributes, none of which is the group.

        Examples
        --------
        >>> catalog = Catalog(np.eye(2), {"category": ["a", "b"], "in_stock": [True, True]})
        >>> sold_out = make_column("in_stock", [True, False], 2)
        >>> catalog.with_attributes({"in_stock": sold_out}).select({"in_stock": True}).rows.tolist()
        [0]
        """
        changed = self._copy(("attributes", "conditions"))
        changed._others = {**self._others, **columns}
        return changed

    def _copy(self, without: Sequence[str]) -> "Catalog":
        """Return a copy without what was computed from the items or attributes that are to change."""
        # Not `copy.copy`: of a catalog in files it would open the files again, which have other attributes.
        made = Catalog.__new__(Catalog)
        made.__dict__.update({name: value for name, value in self.__dict__.items() if name not in without})
        return made

    @cached_property
    def groups(self) -> Groups:
        """The groups without their items."""
        return Groups(self.labels, self.group_sizes)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.labels)

    @classmethod
    def from_codes(
        cls,
        embeddings: npt.NDArray[np.floating[Any]],
        group_of: npt.NDArray[np.integer],
        labels: Sequence[Label],
        ids: npt.NDArray[Any],
        others: Mapping[str, Column] | None = None,
        group_attribute: str = GROUP,
        *,
        normalized: bool = False,
    ) -> "Catalog":
        """Return a catalog from group codes instead of labels. The input is trusted and not checked.

        Catalogs are derived from others in this way, where every label must keep its code. A label may have no item.
        The columns of other attributes, and the name of the group's, are optional. ``normalized`` says that relevance
        is the cosine, and that the embeddings have length 1.

        Examples
        --------
        >>> Catalog.from_codes(np.eye(2), np.array([1, 1]), ["b", "a"], np.array([7, 3])).group_sizes.tolist()
        [0, 2]
        """
        catalog = cls.__new__(cls)
        catalog.embeddings, catalog.normalized = _frozen(np.ascontiguousarray(embeddings).view()), normalized
        catalog.labels = list(labels)
        catalog._names = _names(catalog.labels)
        catalog.group_of = _frozen(group_of.astype(np.int32))
        catalog.group_sizes = _frozen(np.bincount(group_of, minlength=len(labels)).astype(np.int64))
        catalog._others, catalog.group_attribute = dict(others or {}), group_attribute
        catalog._ids = _frozen(ids.copy())
        catalog.rank = _rank(catalog._ids)
        return catalog

    def under(self, labels: Sequence[Label]) -> "Catalog":
        """Return the same items with group codes in the order of these labels; other labels follow behind them.

        Words where these labels are numbers are refused, and numbers where they are words.

        Examples
        --------
        >>> catalog = Catalog(np.eye(2), ["new", "a"]).under(["c", "a"])
        >>> catalog.labels, catalog.group_of.tolist(), catalog.group_sizes.tolist()
        (['c', 'a', 'new'], [2, 1], [0, 1, 1])
        """
        check_same_kind(self._names, _names(labels), "groups")
        known = set(labels)
        names = [*labels, *(label for label in self.labels if label not in known)]
        place = {label: code for code, label in enumerate(names)}
        codes = np.array([place[label] for label in self.labels])
        others = (self._others, self.group_attribute)
        return Catalog.from_codes(
            self.embeddings, codes[self.group_of], names, self.ids, *others, normalized=self.normalized
        )

    def regrouped(
        self, group_of: npt.NDArray[np.integer], n_groups: int, rarity: npt.NDArray[np.float64] | None = None
    ) -> "Catalog":
        """Return the same items with other groups, numbered from 0, for a search with a price for each of these.

        The group that the catalog has becomes one of the other attributes. Nothing is copied. An index may keep groups
        of high and low ``rarity``, one number per group, apart: they tend to have different prices.

        Examples
        --------
        >>> catalog = Catalog(np.eye(3), {"category": ["toys", "books", "toys"]}).regrouped(np.array([0, 0, 2]), 4)
        >>> catalog.group_sizes.tolist(), catalog.select({"category": "toys"}).rows.tolist()
        ([2, 0, 1, 0], [0, 2])
        """
        made = self._copy(("attributes", "conditions", *_BY_GROUP))
        made._ungrouped = self.ungrouped
        made._others, made.group_attribute = dict(self.attributes), _ATOM
        made.labels = list(range(n_groups))
        made._names = np.arange(n_groups)
        made.group_of = _frozen(np.asarray(group_of, dtype=np.int32).copy())
        made.group_sizes = _frozen(np.bincount(made.group_of, self.weights, n_groups).astype(np.int64))
        made.rarity = rarity
        return made

    @property
    def ungrouped(self) -> "Catalog":
        """The catalog before `regrouped`, with its own groups; the catalog itself, if it was not regrouped."""
        return self if self._ungrouped is None else self._ungrouped

    def part(self, rows: npt.NDArray[np.integer]) -> "Catalog":
        """Return a catalog of these rows only, in this order, for a shard to hold.

        Labels and group codes stay those of the whole catalog, so that one price vector serves every part. A group
        without an item in the part has size 0. Consecutive rows share the memory of the whole catalog.

        Examples
        --------
        >>> whole = Catalog(np.eye(4), ["a", "b", "c", "c"])
        >>> part = whole.part(np.array([3, 1]))
        >>> part.ids.tolist(), part.group_of.tolist(), part.group_sizes.tolist()
        ([3, 1], [2, 1], [0, 1, 1])
        """
        rows = np.asarray(rows)
        if rows.dtype.kind not in "iu" or rows.ndim != 1 or len(rows) == 0 or rows.min() < 0 or rows.max() >= len(self):
            raise InvalidInputError(f"a part needs at least one row, each from 0 to {len(self) - 1}.")
        run = bool((np.diff(rows) == 1).all())
        at = slice(int(rows[0]), int(rows[-1]) + 1) if run else rows
        part = self._copy(("attributes", "conditions", "_lookup", *_BY_GROUP))
        part._others = {name: column.take(rows) for name, column in self._others.items()}
        part.embeddings = _frozen(self.embeddings[at])
        part.group_of = _frozen(self.group_of[at])
        part.group_sizes = _frozen(np.bincount(part.group_of, minlength=self.n_groups).astype(np.int64))
        part._ids = _frozen(self.ids[at])
        part.rank = _rank(part._ids)
        return part

    def ids_of(self, rows: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the ids of the items in these rows."""
        at = np.asarray(rows, dtype=np.int64)
        return at.copy() if self._ids is None else plain_words(self._ids[at])

    def rows_of(self, ids: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the row of each id, -1 for an unknown id. The shape is that of ``ids``.

        Examples
        --------
        >>> Catalog(np.eye(2), ["a", "b"], ids=["y", "x"]).rows_of(np.array([["x", "q"]])).tolist()
        [[1, -1]]
        """
        if self._ids is not None:
            return self._lookup.find(ids)
        if ids.dtype.kind not in "iu":
            return np.full(ids.shape, -1, dtype=np.int64)
        return np.where((ids >= 0) & (ids < len(self)), ids, -1).astype(np.int64)

    def rows_of_words(self, lists: Sequence[Sequence[str]]) -> npt.NDArray[np.int64]:
        """Return the row of each id in lists of words, list after list; several times as fast as `rows_of`.

        Raises TypeError if one of them is no str, or the ids of the catalog are numbers.

        Examples
        --------
        >>> Catalog(np.eye(2), ["a", "b"], ids=["y", "x"]).rows_of_words([["x", "q"], ["y"]]).tolist()
        [1, -1, 0]
        """
        if not self.ids_are_words:
            raise TypeError("The ids of the catalog are numbers.")
        return self._lookup.find_words(lists)

    def rows_of_few(self, words: Sequence[str]) -> list[int]:
        """Return the row of each of a few words, -1 for an unknown one: for them faster than `rows_of_words`.

        Examples
        --------
        >>> Catalog(np.eye(2), ["a", "b"], ids=["y", "x"]).rows_of_few(["x", "q"])
        [1, -1]
        """
        if not self.ids_are_words:
            raise TypeError("The ids of the catalog are numbers.")
        return self._lookup.find_few(words)

    def labels_of(self, codes: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the labels of these group codes."""
        return plain_words(self._names[np.asarray(codes, dtype=np.int64)])

    def code_of(self, label: object) -> int:
        """Return the code of a group label, or raise `UnknownGroupError` with close labels."""
        try:
            return self.groups.code_of(label)
        except UnknownGroupError as error:
            raise UnknownGroupError(error.labels, self.labels, self.attribute_of(error.labels[0])) from None

    def attribute_of(self, label: object) -> str | None:
        """Return the first attribute other than the group of which some item has this label; None if none has it."""
        if not isinstance(label, str | int):
            return None
        columns = (pair for pair in self.attributes.items() if pair[0] != self.group_attribute)
        return next(
            (name for name, one in columns if isinstance(one, LabelColumn | ListColumn) and label in one.code_of), None
        )

    def __len__(self) -> int:
        return len(self.embeddings)

    def __repr__(self) -> str:
        kind, cosine = self.embeddings.dtype.name, ", cosine" if self.normalized else ""
        items, groups = count(len(self), "item"), count(self.n_groups, "group")
        return f"Catalog({items}, {groups}, dim {self.dim}, {kind}{cosine})"


def _split_attributes(
    given: Mapping[str, Any], n: int
) -> tuple[str, Sequence[Label] | npt.NDArray[Any], dict[str, Column]]:
    """Return the name and the labels of the group, and the columns of the other attributes."""
    for name in given:
        if not isinstance(name, str) or not name or not is_name(name):
            raise InvalidInputError(f"the name of an attribute must be a word, got {name!r:.80}.")
        if name == ITEM_ID:
            raise InvalidInputError(
                f"no attribute can be called {ITEM_ID!r}, by which conditions and promises name the ids of items: give"
                " it as ids=, or under another name."
            )
    columns = {name: make_column(name, values, n) for name, values in given.items()}
    for name, column in columns.items():
        if isinstance(column, ListColumn) and column.kind in ("str", "int"):
            lost = first_without_label(given[name])
            if lost is not None:
                raise InvalidInputError(no_group(name, lost))
        if isinstance(column, LabelColumn) and column.kind in ("str", "int"):
            labels = given[name]
            return (
                name,
                labels.values() if labels is column else labels,
                {other: columns[other] for other in columns if other != name},
            )
    if not columns or GROUP in columns:
        raise InvalidInputError(
            "no attribute gives each item one str or int: the first that does is the group of an item. Add one, such as"
            ' {"category": [...]}.'
        )
    return GROUP, [_ONE_GROUP] * n, columns


def no_group(name: str, position: int) -> str:
    """Return a sentence about an item without a group."""
    return (
        f"attribute {name!r} has no label in position {position}. It is the first with a str or int per item, and so"
        ' the group of an item, which cannot be missing: give every item a label, such as "none", or put an attribute'
        " first that has one for every item."
    )


def _names(labels: Sequence[Label]) -> npt.NDArray[Any]:
    words = [label for label in labels if isinstance(label, str)]
    if words and len(words) < len(labels):  # labels are numbers, and words name columns of a ledger: no item has them
        return np.array([-1 if isinstance(label, str) else label for label in labels], dtype=np.int64)
    return words_array(words) if words else np.asarray(labels)


def _frozen(array: _Array) -> _Array:
    array.flags.writeable = False
    return array


def _checked_embeddings(given: npt.ArrayLike) -> npt.NDArray[np.floating[Any]]:
    array = to_array(given, "embeddings")
    if array.ndim != 2:
        raise InvalidInputError(f"embeddings must be an (n, d) array, got {array.ndim} dimension(s): reshape them.")
    if array.dtype.newbyteorder("=") not in (np.float16, np.float32, np.float64):
        raise InvalidInputError(
            f"embeddings must be float16, float32 or float64, got {array.dtype}: convert with .astype('float32')."
        )
    if array.size == 0:
        raise InvalidInputError(f"embeddings are empty (shape {array.shape}): a catalog needs at least one item.")
    # A new view has flags of its own: the caller's array stays writeable.
    array = _frozen(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).view())
    check_values(array)
    return array


def check_values(array: npt.NDArray[np.floating[Any]]) -> None:
    """Raise for an embedding with a value that is not finite, or too large, and say which."""
    limit = min(LARGEST_VALUE, float(np.finfo(array.dtype).max))
    step = max(1, _BLOCK_VALUES // array.shape[1])
    for start in range(0, len(array), step):
        fine = np.abs(array[start : start + step]) <= limit
        if not fine.all():
            row, column = (int(at) for at in np.argwhere(~fine)[0])
            value = array[start + row, column]
            raise InvalidInputError(
                f"embeddings hold {value} in row {start + row}, column {column}: "
                + ("remove or repair that item." if not np.isfinite(value) else f"scale them below {limit:g}.")
            )


def _rank(ids: npt.NDArray[Any]) -> npt.NDArray[np.int32] | npt.NDArray[np.int64] | None:
    if bool((ids[1:] > ids[:-1]).all()):
        return None
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        first, second = (int(order[twice[0] + i]) for i in (0, 1))
        raise InvalidInputError(
            f"ids must be distinct, but {ordered[twice[:1]].tolist()[0]!r} is in rows {first} and {second}"
            f" ({len(twice)} repeat(s) in all): drop one, or give them different ids."
        )
    rank = np.empty(len(ids), dtype=np.int64)
    rank[order] = np.arange(len(ids))
    return _frozen(rank.astype(np.int32) if len(ids) <= np.iinfo(np.int32).max else rank)
