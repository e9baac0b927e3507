"""Promises by conditions, in bulk, and for each label."""

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.errors import InfeasibleFloorsError, InvalidInputError
from fairsync.ledger import SqlLedger
from fairsync.promises import Promise
from fairsync.schedule import ScheduledPromise, Window
from fairsync.service.ledger_settings import fit_ledger
from service.promises.test_promise_service import DAY, START, World
from service.promises.test_selections import Shop


def test_promises_made_together_are_made_or_refused_together() -> None:
    world = World([])
    service = world.promise_service
    blue, green = (ScheduledPromise.of_group(label, 3_000, DAY) for label in ("blue", "green"))
    made = service.editor.make_promises([blue, green])
    assert [(one.group, one.floor) for one in made] == [("blue", 3_000), ("green", 3_000)]
    hourly = [ScheduledPromise.of_group(label, 190, Window.hour("UTC")) for label in ("blue", "green", "red")]
    with pytest.raises(InfeasibleFloorsError, match=r"3 new ones included; none of them was made"):
        service.editor.make_promises(hourly)
    with pytest.raises(InvalidInputError, match="for this window already: change"):
        service.editor.make_promises([hourly[0], hourly[0]])
    assert {one.id for one in service.promises()} == {one.id for one in made}, "nothing was changed"


def test_a_promise_for_each_label_follows_labels_that_come_and_go() -> None:
    template = ScheduledPromise(Promise({}, at_least=100, each="group"), DAY)
    world = World([template])
    service = world.promise_service
    before = service.promises()
    assert {one.group for one in before} == {"red", "blue", "green"}
    (series,) = {one.series for one in before}
    assert series is not None
    world.pass_hours(2)
    service.items.upsert(world.rng.normal(size=(5, 8)), ["gold"] * 5, [500, 501, 502, 503, 504])
    assert {one.group for one in service.promises()} == {"red", "blue", "green", "gold"}
    world.pass_hours(22)
    assert {one.group: one.kept for one in service.past()} == dict.fromkeys(["red", "blue", "green", "gold"], True)
    with pytest.raises(InvalidInputError, match="one of a promise for each label: change or delete"):
        service.editor.delete_promise(before[0].id)
    changed = service.editor.set_promise(ScheduledPromise(Promise({}, at_least=50, each="group"), DAY), series)
    assert {(one.series, one.floor) for one in service.promises()} == {(series, 50)}
    assert changed.id in {one.id for one in before}, "a label keeps the id of its promise"
    service.items.remove([500, 501, 502, 503, 504])
    assert {one.group for one in service.promises()} == {"red", "blue", "green"}
    world.promise_service.close()
    world.start(fit_ledger(world.catalog, world.ledger))
    assert {one.series for one in world.promise_service.promises()} == {series}
    world.promise_service.editor.delete_promise(series)
    assert world.promise_service.promises() == []


def test_labels_of_other_files_are_promised_and_those_that_are_gone_lose_their_promise() -> None:
    world = World([ScheduledPromise(Promise({}, at_least=100, each="group"), DAY)])
    world.pass_hours(2)
    before = {one.group: one.id for one in world.promise_service.promises()}
    world.promise_service.close()
    labels = np.array(["red"] * 40 + ["blue"] * 40 + ["gold"] * 40)
    other = Catalog(world.catalog.embeddings, labels, ids=world.catalog.ids)
    world.start(fit_ledger(other, world.ledger))
    after = {one.group: one.id for one in world.promise_service.promises()}
    assert set(after) == {"red", "blue", "gold"}
    assert {label: after[label] for label in ("red", "blue")} == {label: before[label] for label in ("red", "blue")}
    world.pass_hours(22)
    assert {one.group: one.kept for one in world.promise_service.past()} == dict.fromkeys(after, True)


def test_a_process_that_ends_after_it_has_saved_items_leaves_their_promises_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = ScheduledPromise(Promise({}, at_least=100, each="category"), DAY)
    gold = {"category": ["gold"], "maker": ["m0"], "new": [True]}
    with SqlLedger(tmp_path / "a.db", 3) as ledger:
        shop = Shop([template], ledger)
        with monkeypatch.context() as patched:
            patched.setattr(shop.service.scheduler, "change", interrupt)
            with pytest.raises(KeyboardInterrupt):
                shop.service.items.upsert(np.ones((1, 8)), gold, [500])
        shop.service.refresh()
        assert "gold" in {one.group for one in shop.service.promises()}


def interrupt(*_: object) -> None:
    """Stand for the end of the process."""
    raise KeyboardInterrupt


def test_a_label_that_comes_late_begins_with_the_next_window() -> None:
    world = World([ScheduledPromise(Promise({}, at_least=1_000, each="group"), DAY)])
    world.pass_hours(23)
    world.promise_service.items.upsert(world.rng.normal(size=(5, 8)), ["gold"] * 5, [500, 501, 502, 503, 504])
    (gold,) = [one for one in world.promise_service.promises() if one.group == "gold"]
    assert gold.start == START + timedelta(days=1), "an hour is too short for it"
    assert gold.state == "on track"
    world.pass_hours(25)
    past = world.promise_service.past()
    assert [(one.start, one.kept) for one in past if one.group == "gold"] == [(gold.start, True)]


def test_a_label_of_another_attribute_begins_with_the_first_window_that_is_counted_as_a_whole() -> None:
    shop = Shop([ScheduledPromise(Promise({}, at_least=10, each="maker"), DAY)])
    shop.pass_hours(3)
    shop.service.items.upsert(np.ones((1, 8)), {"category": ["toys"], "maker": ["late"], "new": [True]}, [500])
    (late,) = [one for one in shop.service.promises() if one.where == {"maker": "late"}]
    assert late.start == START + timedelta(days=1)
