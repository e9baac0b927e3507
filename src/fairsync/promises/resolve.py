"""From promises and a catalog to atoms and terms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fairsync.catalog.atoms import Atoms
from fairsync.catalog.attributes import LabelColumn, ListColumn
from fairsync.catalog.conditions import ITEM_ID
from fairsync.catalog.groups import grow
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_k, check_max_exclude, check_positive
from fairsync.policies.base import NO_CAP, Terms
from fairsync.promises.certainty import certain_floors
from fairsync.promises.certificate import SECONDS, find_certificate
from fairsync.promises.feasibility import check_together, explain_conflict
from fairsync.promises.floors import capacities_of
from fairsync.promises.home_atoms import with_homes, with_homes_before
from fairsync.promises.list_limits import longest_list, tree_of
from fairsync.promises.plan_bounds import PlanBounds
from fairsync.promises.promise import EVERY_SLOT, Promise
from fairsync.promises.selected_rows import SelectedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.policies.base import Counts


# It keeps its place, and gets its floor where it is needed.
_NO_EVERY_SLOT = Promise({}, at_least=0, name=EVERY_SLOT)

Series: TypeAlias = tuple[object, ...]
"""The attribute, the bounds and the further conditions of a call of :func:`fairsync.each`."""


@dataclass(frozen=True, eq=False)
class ResolvedPromises:
    """Promises about the items of a catalog, as arrays.

    Attributes
    ----------
    promises : tuple of Promise
        The promises, in the order of their codes. Their names are distinct.
    atoms : Atoms
        The atoms of the catalog under these promises.
    terms : Terms
        Floors, caps and limits per list as numbers, what atoms can show, which promises are certain
        (:mod:`fairsync.promises.certainty`), and a certificate.
    known_labels : dict
        For each series of promises that :func:`fairsync.each` made, the labels that items have had.
    most_in_list : numpy.ndarray
        (P,) the most items of each promise that a list has had room for since the promise was made.
    """

    promises: tuple[Promise, ...]
    atoms: Atoms
    terms: Terms
    known_labels: Mapping[Series, frozenset[object]]
    most_in_list: Counts

    @property
    def names(self) -> list[str]:
        """The names of the promises."""
        return [promise.name for promise in self.promises]


def resolve_promises(
    catalog: Catalog,
    promises: Iterable[Promise],
    k: int,
    horizon: int,
    batch_size: int,
    *,
    max_exclude: int = 0,
    auto_restart: bool = True,
    before: ResolvedPromises | None = None,
    seconds: float = SECONDS,
    give_way: Callable[[PlanBounds, Counts], Counts] | None = None,
    may_give_way: bool = False,
    is_steady: bool = False,
) -> ResolvedPromises:
    """Return promises as atoms and terms with a certificate, or raise an error that says what is wrong with them.

    Parameters
    ----------
    catalog
        The items.
    promises
        The promises. Of two with the same conditions and no name, the second is called "... (2)".
    k, horizon, batch_size, max_exclude, auto_restart
        As in `Terms`.
    before
        The promises before a change of the items or the promises. A promise with the name of one before takes its code.
        One that is not given again is withdrawn: it stays in its place as a promise of 0. New ones follow, and after
        them the promises of :func:`fairsync.each` for labels that have their first items; a series that is given again
        keeps those that it has got in this way. Atoms keep their codes, too.
    seconds
        The time limit for the proof that the promises can hold together.
    give_way
        Given the bounds and (P,) the priorities of promises that cannot all hold together, returns (A,) a plan that
        keeps what can be kept. By default such promises are refused.
    may_give_way
        Whether such a refusal says that `FairRetriever` can let floors give way, where that is enough.
    is_steady
        Whether floors that were expected before, and not certain, stay so, and small atoms keep their homes.

    Raises
    ------
    InvalidInputError
        A promise cannot be used as given.
    InfeasibleFloorsError, UndecidedPromisesError
        They cannot hold together, or that could not be decided in time.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> attributes = {"category": ["toys", "toys", "books", "books"], "new": [True, False, True, False]}
    >>> catalog = Catalog(np.eye(4), attributes)
    >>> resolved = resolve_promises(
    ...     catalog, [Promise({"category": "toys"}, at_least=5), Promise({"new": True}, at_least=0.4)], 2, 10, 1
    ... )
    >>> resolved.names, resolved.terms.floors.tolist(), resolved.atoms.atom_of.tolist()
    (['category=toys', 'new=True'], [5, 8], [0, 1, 2, 3])
    """
    k, horizon = check_k(k, catalog), check_positive(horizon, "horizon")
    batch_size, max_exclude = check_positive(batch_size, "batch_size"), check_max_exclude(max_exclude, k, catalog)
    rows, n_before = SelectedRows(catalog), 0 if before is None else len(before.promises)
    given, known = _with_new_labels(_in_order(_checked(promises), before), rows, catalog, before)

    def resolve() -> tuple[Atoms, Counts, Counts, Counts, Counts]:
        rows.look_up(promise.where for promise in given)
        selected = [_rows_of(promise, rows, is_new=code >= n_before) for code, promise in enumerate(given)]
        atoms = Atoms.of(selected, catalog.n_rows, None if before is None else before.atoms, catalog.weights)
        most = np.minimum([rows.count(some) for some in selected], k)
        ever = most if before is None else np.maximum(most, grow(before.most_in_list, len(given)))
        floors, caps, limits = _numbers(given, k, horizon, most, ever)
        if rows.speaks_of_ids(ITEM_ID):  # the promise of an item ends with it
            ended = [promise.each == ITEM_ID and not len(some) for promise, some in zip(given, selected, strict=True)]
            floors = np.where(ended, 0, floors)
        rules = np.array([promise.is_rule for promise in given])  # they stand for the promises of labels
        return atoms, ever, np.where(rules, 0, floors), np.where(rules, NO_CAP, caps), np.where(rules, k, limits)

    atoms, ever, floors, caps, limits = resolve()
    names = [promise.name for promise in given]
    if _must_plan_every_slot(atoms, caps, limits, k, max_exclude, names):
        every = Promise({}, at_least=1.0, name=EVERY_SLOT)
        given = (
            (*given, every) if EVERY_SLOT not in names else tuple(every if p.name == EVERY_SLOT else p for p in given)
        )
        names = [promise.name for promise in given]
        atoms, ever, floors, caps, limits = resolve()
    terms = Terms(
        floors, capacities_of(atoms.sizes, k, max_exclude), k, horizon, batch_size, auto_restart, max_exclude,
        None if (caps == NO_CAP).all() else caps, atoms.membership, None if (limits == k).all() else limits,
    )  # fmt: skip
    order = np.array([0 if promise.name == EVERY_SLOT else promise.priority for promise in given])
    limit = np.array([np.inf if promise.max_price is None else promise.max_price for promise in given])
    terms = replace(
        terms,
        priorities=None if (order == 1).all() else order,
        max_prices=None if np.isinf(limit).all() else limit,
    )
    may_be_certain = np.ones(len(names), dtype=bool)
    if is_steady and before is not None:
        terms = with_homes_before(atoms, terms, before.terms) or terms
        if before.terms.certain is not None:
            may_be_certain[:n_before] = before.terms.certain
    else:
        atoms, terms = with_homes(atoms, terms)
    proved = replace(terms, floors=np.where(may_be_certain, floors, 0))
    certain, plan = _prove(proved, atoms, names, seconds, give_way, may_give_way=may_give_way)
    certain &= may_be_certain | (floors == 0)
    if EVERY_SLOT in names and not certain[names.index(EVERY_SLOT)]:
        raise InvalidInputError(
            "the promises with at_most leave too few items outside them: if requests exclude max_exclude items,"
            " lists might not be filled. Raise some at_most, or take some away."
        )
    terms = replace(terms, certain=None if certain.all() else certain, certificate=plan)
    return ResolvedPromises(given, atoms, terms, known, ever)


def restore_promises(catalog: Catalog, promises: Sequence[Promise], terms: Terms) -> ResolvedPromises:
    """Return promises as they were when they were saved with these terms: nothing is decided again.

    Parameters
    ----------
    catalog, promises, terms
        The items, the promises in the order of their codes, and what `resolve_promises` made of them.
    """
    assert terms.membership is not None
    atoms = find_atoms(catalog, promises, Atoms(np.empty(0, dtype=np.int32), terms.membership))
    _, known = _with_new_labels(list(promises), SelectedRows(catalog), catalog, None)
    return ResolvedPromises(tuple(promises), atoms, terms, known, _most_ever(promises, terms))


def resumed_promises(promises: Iterable[Promise], names: Sequence[object], terms: Terms) -> ResolvedPromises | None:
    """Return the promises that a ledger counts, as `resolve_promises` needs them; None if some are not given again.

    Then they are no new promises: all keep their place, atoms keep their codes, and items may be gone.

    Parameters
    ----------
    promises
        All promises from now on.
    names, terms
        The names of the promises that the ledger counts, in this order, and the terms that were saved in it.
    """
    if terms.membership is None:
        return None
    by_name = {promise.name: promise for promise in _checked(promises)}
    by_name.setdefault(EVERY_SLOT, _NO_EVERY_SLOT)
    counted = names[: terms.membership.n_promises]
    if not all(name in by_name for name in counted):
        return None
    known = [by_name[str(name)] for name in counted]
    atoms = Atoms(np.empty(0, dtype=np.int32), terms.membership)
    return ResolvedPromises(tuple(known), atoms, terms, {}, _most_ever(known, terms))


def _most_ever(promises: Sequence[Promise], terms: Terms) -> Counts:
    """Return (P,) the most items of each promise that a list may have had room for, from what was saved."""
    ever = np.full(len(promises), terms.k)
    for code, promise in enumerate(promises):
        cap = promise.cap(terms.horizon * terms.k)
        if cap is not None and (terms.caps is None or terms.caps[code] == NO_CAP):  # it could not be exceeded
            ever[code] = min(cap // terms.horizon, terms.k)
    return ever


def find_atoms(catalog: Catalog, promises: Iterable[Promise], before: Atoms | None = None) -> Atoms:
    """Return the atoms of a catalog under promises that were resolved elsewhere, perhaps over other items.

    Parameters
    ----------
    catalog, promises
        The items, and the promises in the order of their codes. One that no item meets is no error here.
    before
        The atoms before a change of the items, which keep their codes.
    """
    rows, given = SelectedRows(catalog), list(promises)
    rows.look_up(promise.where for promise in given)
    return Atoms.of([rows.of(promise.where) for promise in given], catalog.n_rows, before, catalog.weights)


def _checked(promises: Any) -> list[Promise]:
    if isinstance(promises, Promise) or not hasattr(promises, "__iter__"):
        raise InvalidInputError(f"promises must be a list of fairsync.Promise, got {promises!r:.80}.")
    given = list(promises)
    for one in given:
        if isinstance(one, Promise):
            continue
        if isinstance(one, list | tuple) and one and all(isinstance(inner, Promise) for inner in one):
            raise InvalidInputError("promises hold a list of promises: write *fs.each(...), with a star.")
        raise InvalidInputError(f"promises must be fairsync.Promise, got {one!r:.80}.")
    if not given:
        raise InvalidInputError("promises are empty: give one at least, or floors.")
    for one in given:
        if one.name == EVERY_SLOT and one.where:
            raise InvalidInputError(f"the name {EVERY_SLOT!r} has a meaning of its own: choose another one.")
    return _with_distinct_names([_NO_EVERY_SLOT if one.name == EVERY_SLOT else one for one in given])


def _with_distinct_names(promises: Sequence[Promise]) -> list[Promise]:
    """Return promises with distinct names: those made of the same conditions are numbered, others are refused."""
    used: dict[str, Promise] = {}
    for promise in promises:
        name, number = promise.name, 2
        if name in used and not (promise.has_default_name and used[name].has_default_name):
            raise InvalidInputError(f"two promises are called {name!r}: give them different names.")
        while name in used:
            name, number = f"{promise.name} ({number})", number + 1
        used[name] = promise if name == promise.name else replace(promise, name=name)
    return list(used.values())


def _in_order(given: Sequence[Promise], before: ResolvedPromises | None) -> list[Promise]:
    """Return the promises in the order of their codes: first those before, changed, or withdrawn if not given again."""
    if before is None:
        return list(given)
    by_name = {promise.name: promise for promise in given}
    series = {_series(promise) for promise in given if promise.each is not None}
    kept = []
    for promise in before.promises:
        withdrawn = replace(promise, at_least=0, at_most=None, at_most_per_list=None, each=None, max_price=None)
        same = promise if promise.each is not None and _series(promise) in series else withdrawn
        kept.append(by_name.pop(promise.name, same))
    return kept + list(by_name.values())


def _with_new_labels(
    promises: list[Promise], rows: SelectedRows, catalog: Catalog, before: ResolvedPromises | None
) -> tuple[tuple[Promise, ...], dict[Series, frozenset[object]]]:
    """Return the promises with those of `each` for labels that have their first items, and all labels known by now."""
    known: dict[Series, frozenset[object]] = {}
    members = [promise for promise in promises if promise.each is not None]
    have = {(_series(promise), repr(promise.where.get(str(promise.each)))) for promise in members}
    rules = {_series(promise) for promise in members if promise.is_rule}
    for series, model in {_series(promise): promise for promise in members}.items():
        attribute, others = str(model.each), {name: one for name, one in model.where.items() if name != model.each}
        has_labels = isinstance(catalog.attributes.get(attribute), LabelColumn | ListColumn)
        if not (has_labels or rows.speaks_of_ids(attribute)):
            raise InvalidInputError(f"promise {model.name!r}: {attribute!r} is no attribute with labels.")
        used = rows.labels_in_use(attribute, others)
        seen = None if before is None else before.known_labels.get(series)
        known[series] = frozenset(used) | (seen or frozenset())
        if seen is not None or series in rules:
            new = [label for label in used if label not in (seen or ()) and (series, repr(label)) not in have]
            promises += [replace(model, where={attribute: label, **others}, name="") for label in new]
    return tuple(_with_distinct_names(promises)), known


def _series(promise: Promise) -> Series:
    """Return what the promises of one call of `each` have in common."""
    others = {name: value for name, value in promise.where.items() if name != promise.each}
    bounds = promise.at_least, promise.at_most, promise.at_most_per_list
    return promise.each, *bounds, promise.priority, promise.max_price, repr(others)


def _rows_of(promise: Promise, rows: SelectedRows, *, is_new: bool) -> NDArray[np.int64]:
    try:
        if is_new:
            rows.check_labels(promise.where)
        found = rows.of(promise.where)
    except InvalidInputError as error:
        raise InvalidInputError(f"promise {promise.name!r}: {error}") from None
    if is_new and not len(found) and not promise.is_rule:
        raise InvalidInputError(f"promise {promise.name!r}: no item meets its conditions.")
    return found


def _numbers(
    promises: Sequence[Promise], k: int, horizon: int, most: Counts, ever: Counts
) -> tuple[Counts, Counts, Counts]:
    """Return floors, caps and limits per list. Upper bounds that exclude nothing become `NO_CAP` and k.

    Lists have room for ``most`` items of each promise, and had room for ``ever`` before some items were removed.
    """
    slots = horizon * k
    floors = np.array([promise.floor(slots) for promise in promises], dtype=np.int64)
    caps = np.array([NO_CAP if (cap := promise.cap(slots)) is None else cap for promise in promises], dtype=np.int64)
    for code in np.flatnonzero(floors > caps)[:1].tolist():
        raise InvalidInputError(
            f"promise {promises[code].name!r}: at_least is {floors[code]:,} of {slots:,} slots, more than at_most,"
            f" {caps[code]:,}."
        )
    limits = np.array([k if p.at_most_per_list is None else p.at_most_per_list for p in promises], dtype=np.int64)
    return floors, np.where(caps >= horizon * ever, NO_CAP, caps), np.where(limits >= most, k, limits)


def _must_plan_every_slot(
    atoms: Atoms, caps: Counts, limits: Counts, k: int, max_exclude: int, names: Sequence[str]
) -> bool:
    """Return whether too few items lie outside all caps to fill a list with, once the caps are used up.

    Then the certificate must say how every slot can be filled, not only those that floors need. Raise if limits per
    list alone leave lists short.
    """
    capped, limited = caps < NO_CAP, np.flatnonzero(limits < k)
    if not capped.any() and not len(limited):
        return False
    membership = atoms.membership
    tree = tree_of(membership, limited, atoms.sizes, names)
    longest = longest_list(membership, atoms.sizes, limits, tree)
    if longest < k + max_exclude:
        need = f"k = {k}" if not max_exclude else f"k + max_exclude = {k + max_exclude}"
        raise InvalidInputError(
            f"a list has room for {longest:,} items under at_most_per_list, fewer than {need}: raise some limits."
        )
    outside = np.where(membership.in_any(capped), 0, atoms.sizes)
    return longest_list(membership, outside, limits, tree) < k + max_exclude


def _prove(
    terms: Terms,
    atoms: Atoms,
    names: Sequence[str],
    seconds: float,
    give_way: Callable[[PlanBounds, Counts], Counts] | None,
    *,
    may_give_way: bool,
) -> tuple[NDArray[np.bool_], Counts]:
    """Return which promises are certain, and a certificate for these, or raise if not all can hold."""
    everything = np.ones(len(names), dtype=bool)
    if give_way is None and not terms.max_exclude:
        return everything, check_together(terms, names, seconds, may_give_way=may_give_way)
    plan = find_certificate(terms, terms.floors, terms.caps, terms.horizon, seconds=seconds)
    if plan is not None:
        return everything, plan
    bounds = PlanBounds.of(terms, terms.floors, terms.caps, terms.horizon)
    if terms.max_exclude:
        whole = replace(terms, capacities=np.minimum(terms.k, atoms.sizes))
        if give_way is None:
            check_together(whole, names, seconds, may_give_way=may_give_way)
        if give_way is None or find_certificate(whole, whole.floors, whole.caps, whole.horizon) is not None:
            return certain_floors(bounds, seconds)
    assert give_way is not None
    plan = give_way(bounds, terms.order)
    if (terms.exposures(plan) < terms.floors)[terms.order == 0].any():  # caps do not give way
        raise explain_conflict(replace(terms, floors=np.where(terms.order == 0, terms.floors, 0)), names)
    return everything, plan
