"""Promises on the command line: ``--promise``, ``--each``, ``--promises`` and ``--floors``."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairsync.catalog.attributes import LabelColumn, ListColumn, NumberColumn
from fairsync.catalog.conditions import ITEM_ID
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.loop.spending import check_budget
from fairsync.promises import Promise, each
from fairsync.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label

_PANEL = "Promises that may overlap"
PromiseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--promise",
        help="Conditions and bounds: 'category=toys new=true at_least=5% at_most=1000'. Also at_most_per_list, name,"
        " priority, max_price, price<=9.5, brand!=acme, and 'tags=a tags=b' for one of two. Repeatable.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
EachOption = Annotated[
    list[str] | None,
    typer.Option(
        "--each",
        help="The same for each label of an attribute: 'provider at_least=20'. Repeatable.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
PromisesOption = Annotated[
    Path | None,
    typer.Option(
        "--promises",
        help="TOML: [[promises]] with where = {category = 'toys'}, at_least, at_most, at_most_per_list, name, priority,"
        " max_price; and [[each]] with attribute.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
GiveWayOption = Annotated[
    bool,
    typer.Option(
        "--give-way",
        help="Accept promises that cannot all be kept: those of the lowest priority give way.",
        rich_help_panel=_PANEL,
    ),
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        help="The part of the relevance that all promises together may cost, such as 1% or 0.01. Those of the lowest"
        " priority give way to it.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]

_WORD = re.compile(r"(?P<name>.+?)(?P<sign>!=|<=|>=|=)(?P<value>.*)", re.DOTALL)
_BOUNDS = ("at_least", "at_most", "at_most_per_list", "priority", "max_price")
_RANGES = {">=": "at_least", "<=": "at_most"}
_BOOLS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def read_promises(
    catalog: Catalog, promises: Sequence[str] | None, series: Sequence[str] | None, file: Path | None
) -> list[Promise] | None:
    """Return the promises of the three options, or None if there are none.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(2), {"category": ["toys", "board games"], "new": [True, False]})
    >>> read_promises(catalog, ["category='board games' new=false at_least=5%"], None, None)
    [Promise(category=board games, new=False: at least 5 %)]
    >>> read_promises(catalog, None, ["new at_most=7"], None)
    [Promise(new=False: at most 7), Promise(new=True: at most 7)]
    """
    made = [_promise(catalog, text) for text in promises or ()]
    for text in series or ():
        made.extend(_series(catalog, text))
    if file is not None:
        made.extend(_from_file(catalog, file))
    return made or None


def read_budget(text: str | None) -> float | None:
    """Return the budget that was given as a fraction or a percentage.

    Examples
    --------
    >>> read_budget("1%")
    0.01
    """
    return None if text is None else check_budget(float(_number("--budget", text)))


def read_floors(path: Path, catalog: Catalog) -> dict[Label, int]:
    """Return {label: floor} from a JSON or TOML file, whose keys are text also if the catalog's labels are numbers."""
    try:
        text = path.read_text(encoding="utf-8")
        given = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path} cannot be read ({error}): write {{label: exposures}}.") from error
    if not isinstance(given, dict):
        raise InvalidInputError(f"{path} must hold {{label: exposures}}, got a {type(given).__name__}.")
    labels = {str(label): label for label in catalog.labels}
    return {labels.get(word, word): floor for word, floor in given.items()}


def _promise(catalog: Catalog, text: str) -> Promise:
    try:
        where, given = _parse(catalog, _words(text))
        return Promise(where, **given)
    except FairSyncError as error:
        raise InvalidInputError(f"--promise {text!r}: {error}") from None


def _series(catalog: Catalog, text: str) -> list[Promise]:
    try:
        attribute, *rest = _words(text) or [""]
        if _WORD.fullmatch(attribute) or not attribute:
            raise InvalidInputError("begin with the name of an attribute, as in 'provider at_least=20'.")
        where, given = _parse(catalog, rest)
        if "name" in given:
            raise InvalidInputError("each promise has the name of its label: leave out name.")
        return each(catalog, attribute, where=where, **given)
    except FairSyncError as error:
        raise InvalidInputError(f"--each {text!r}: {error}") from None


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidInputError(f"quotes do not match ({error}).") from None


def _parse(catalog: Catalog, words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the conditions and the bounds that words say."""
    where: dict[str, Any] = {}
    given: dict[str, Any] = {}
    for word in words:
        found = _WORD.fullmatch(word)
        if found is None:
            raise InvalidInputError(f"{word!r} is no condition and no bound: write it as name=value.")
        name, sign, value = found["name"], found["sign"], found["value"]
        if sign == "=" and name in (*_BOUNDS, "name"):
            if name in given:
                raise InvalidInputError(f"{name} is given twice.")
            given[name] = value if name == "name" else _number(name, value)
            continue
        if name not in catalog.attributes and name != ITEM_ID:
            names = ", ".join(catalog.attributes)
            hint = did_you_mean(name, [*catalog.attributes, *_BOUNDS], f"There are the attributes {names}.")
            raise InvalidInputError(f"{name!r} is no attribute and no bound. {hint}")
        if sign in _RANGES:
            where[name] = {**_known_range(where.get(name), name), _RANGES[sign]: float(_number(name, value))}
            continue
        _add(where, name, _label(catalog, name, value), negated=sign == "!=")
    return where, given


def _known_range(known: Any, name: str) -> Mapping[str, Any]:
    if known is None or (isinstance(known, dict) and "not" not in known):
        return known or {}
    raise InvalidInputError(f"{name!r} has a value and a range: give one of the two.")


def _add(where: dict[str, Any], name: str, value: Any, *, negated: bool) -> None:
    """Add a value to the conditions: repeated values of an attribute are alternatives."""
    known = where.get(name)
    if known is None:
        where[name] = {"not": [value]} if negated else value
    elif negated != isinstance(known, dict) or (isinstance(known, dict) and "not" not in known):
        raise InvalidInputError(f"{name!r} has conditions of two kinds: give one of them.")
    elif isinstance(known, dict):
        known["not"].append(value)
    else:
        where[name] = [*(known if isinstance(known, list) else [known]), value]


def _label(catalog: Catalog, name: str, text: str) -> Any:
    """Return a value of an attribute, in the type that the attribute has."""
    column = catalog.attributes.get(name)
    if isinstance(column, NumberColumn):
        return float(_number(name, text))
    kind = column.kind if isinstance(column, LabelColumn | ListColumn) else "str"
    if column is None and catalog.ids.dtype.kind in "iu":  # ids of items
        kind = "int"
    if kind == "bool":
        if text.casefold() not in _BOOLS:
            raise InvalidInputError(f"{name!r} is true or false, got {text!r}.")
        return _BOOLS[text.casefold()]
    if kind == "int":
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise InvalidInputError(f"{name!r} has whole numbers, got {text!r}.")
        return int(text)
    return text


def _number(name: str, text: str) -> float:
    """Return a whole number, a fraction, or a percentage as a fraction."""
    plain = text.replace("_", "")
    if re.fullmatch(r"-?[0-9]+", plain):
        return int(plain)
    try:
        return float(plain[:-1]) / 100 if plain.endswith("%") else float(plain)
    except ValueError:
        raise InvalidInputError(f"{name} must be a number such as 1000, 0.05 or 5%, got {text!r}.") from None


def _from_file(catalog: Catalog, file: Path) -> list[Promise]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{file} cannot be read as TOML ({error}).") from error
    made: list[Promise] = []
    try:
        unknown = [key for key in document if key not in ("promises", "each")]
        if unknown or not document:
            what = repr(unknown[0]) if unknown else "nothing"
            raise InvalidInputError(f"there is {what}: write [[promises]] or [[each]].")
        rows = _rows(document, "promises", {"where", *_BOUNDS, "name"})
        made.extend(Promise(row.pop("where", {}), **row) for row in rows)
        for row in _rows(document, "each", {"attribute", "where", *_BOUNDS}):
            made.extend(each(catalog, str(row.pop("attribute", "")), **row))
    except FairSyncError as error:
        raise InvalidInputError(f"{file}: {error}") from None
    return made


def _rows(document: Mapping[str, Any], name: str, keys: set[str]) -> list[dict[str, Any]]:
    rows = document.get(name, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidInputError(f"{name!r} must be sections, written [[{name}]].")
    for row in rows:
        unknown = [key for key in row if key not in keys]
        if unknown:
            raise InvalidInputError(f"[[{name}]] has no key {unknown[0]!r}, only {', '.join(sorted(keys))}.")
    return [dict(row) for row in rows]
