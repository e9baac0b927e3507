"""The form of the items that an engine holds, and whether items of another form fit into it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fairsync.catalog import Catalog
from fairsync.catalog.attributes import AttributeLabel, Column, LabelColumn, ListColumn, NumberColumn
from fairsync.errors import InvalidInputError
from fairsync.text import did_you_mean

_WORDS = {"str": "words", "int": "whole numbers", "bool": "true or false", "float": "numbers", "": "words"}


@dataclass(frozen=True)
class ItemSchema:
    """The form of items.

    Attributes
    ----------
    dim : int
        The number of dimensions; 0 if that is not known.
    ids : type
        The type of the ids: str or int.
    columns : dict
        A column for each attribute, which says its type; it may have no items.
    """

    dim: int
    ids: type[str] | type[int]
    columns: Mapping[str, Column]

    @classmethod
    def of(cls, catalog: Catalog) -> "ItemSchema":
        """Return the form of the items of a catalog."""
        return cls(catalog.dim, str if catalog.ids.dtype.kind in "UO" else int, catalog.conditioned_attributes)

    def check_names(self, columns: Iterable[str]) -> None:
        """Raise if names were given for an attribute that the items do not have.

        Examples
        --------
        >>> ItemSchema(8, str, {"size": empty_column("float")}).check_names({"size": "width"})
        """
        for name in columns:
            if name not in self.columns:
                hint = did_you_mean(name, self.columns, f"There are {', '.join(self.columns)}.")
                raise InvalidInputError(f"columns= names {name!r}, which is no attribute of the items. {hint}")

    def check_fits(self, held: "ItemSchema", place: str) -> None:
        """Raise if items of this form cannot be in a place that holds items of another one.

        Examples
        --------
        >>> schema = ItemSchema(8, str, {"size": empty_column("float")})
        >>> schema.check_fits(ItemSchema(8, str, {"size": empty_column("int")}), "the table")
        """
        if held.ids is not self.ids:
            ids = {str: "words", int: "numbers"}
            raise InvalidInputError(
                f"the ids of {place} are {ids[held.ids]}, and those of the items are {ids[self.ids]}: name another"
                " column or field for ids, or convert it."
            )
        check_dim(self.dim, held.dim or self.dim, place)
        for name, column in self.columns.items():
            there = held.columns[name]
            is_list, are_lists = isinstance(column, ListColumn), isinstance(there, ListColumn)
            fitting = {"": ("str",), "float": ("float", "int")}.get(column.kind, (column.kind,))
            if is_list != are_lists or there.kind not in fitting:
                raise InvalidInputError(
                    f"{place} has {_words(there.kind, are_lists)} for the attribute {name!r}, which needs"
                    f" {_words(column.kind, is_list)}: name another column or field, or convert it."
                )


def check_dim(dim: int, held: int, place: str) -> None:
    """Raise if vectors that are there have another number of dimensions."""
    if held != dim:
        raise InvalidInputError(
            f"the vectors of {place} have {held} dimensions, and the catalog has {dim}: use embeddings of the same"
            " model."
        )


def check_metric(held: str, wanted: str, place: str) -> None:
    """Raise if vectors that are there are compared by anything but the inner product, as the engine names it."""
    if held != wanted:
        raise InvalidInputError(
            f"the metric of {place} is {held}, and relevance is the inner product: use a collection with {wanted}. For"
            " cosines, store vectors of length 1 in it (normalize=True)."
        )


def _words(kind: str, is_list: bool) -> str:
    return f"lists of {_WORDS[kind]}" if is_list else _WORDS[kind]


def empty_column(kind: str, *, is_list: bool = False) -> Column:
    """Return a column without items, of a type: ``"str"``, ``"int"``, ``"bool"`` or ``"float"``.

    Examples
    --------
    >>> empty_column("int", is_list=True).kind, len(empty_column("float"))
    ('int', 0)
    """
    if kind == "float":
        return NumberColumn(np.empty(0))
    examples: dict[str, AttributeLabel] = {"str": "", "int": 0, "bool": False}
    label = examples[kind]
    codes = np.empty(0, dtype=np.int32)
    return ListColumn(codes, np.zeros(1, dtype=np.int64), [label]) if is_list else LabelColumn(codes, [label])
