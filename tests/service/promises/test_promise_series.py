"""Promises by conditions, in bulk, and for each label."""

import pytest

from fairsync.errors import InfeasibleFloorsError, InvalidInputError
from fairsync.promises import Promise
from fairsync.schedule import ScheduledPromise, Window
from fairsync.service.ledger_settings import fit_ledger
from service.promises.test_promise_service import DAY, World


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
