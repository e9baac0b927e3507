"""Items changed through the service: after a restart, in other services, and with other files."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from fairsync.catalog import Catalog
from fairsync.catalog.files import open_catalog, save_catalog
from fairsync.cli import app
from fairsync.errors import InvalidInputError
from fairsync.service.run import make_promise_service
from fairsync.service.settings import load_settings
from postgres_server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fairsync.service.promises.promise_service import PromiseService

DIM = 4
NEW = np.full((1, DIM), 9.0, dtype=np.float32)


def write_items(folder: Path, scale: float = 1.0) -> None:
    rng = np.random.default_rng(0)
    names = [f"item-{number}" for number in range(20)]
    catalog = Catalog((scale * rng.normal(size=(20, DIM))).astype(np.float32), ["a", "b"] * 10, names)
    save_catalog(catalog, folder / "items")


@pytest.fixture(params=["sqlite", "postgres"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Return the configuration of a service whose ledger is durable."""
    write_items(tmp_path)
    path = tmp_path / "service.toml"
    words = '[catalog]\npath = "items"\n[promise]\nk = 3\n'
    if request.param == "sqlite":
        path.write_text(f'ledger = "sqlite:///exposures.db"\n{words}')
        yield path
    else:
        with PostgresServer() as server:
            path.write_text(f'ledger = "{server.url}"\n{words}')
            yield path


@contextmanager
def started(config: Path) -> Iterator[PromiseService]:
    service = make_promise_service(load_settings(config, {}))
    try:
        yield service
    finally:
        service.close()
        service.coordinator.close()
        service.coordinator.ledger.close()


def contents(catalog: Catalog) -> dict[str, tuple[str, list[float]]]:
    """Return group and embedding of each item."""
    labels = catalog.labels_of(catalog.group_of).tolist()
    return dict(zip(catalog.ids.tolist(), zip(labels, catalog.embeddings.tolist(), strict=True), strict=True))


def change(service: PromiseService) -> dict[str, tuple[str, list[float]]]:
    """Add an item of a new group, move one, remove two, put one of these back; return all items after that."""
    service.items.upsert(NEW, ["c"], ["fresh"])
    service.items.upsert(2 * NEW, ["a"], ["item-1"])
    service.items.remove(["item-2", "item-3"])
    service.items.upsert(3 * NEW, ["b"], ["item-3"])
    return contents(service.catalog)


def test_changes_survive_a_restart(config: Path) -> None:
    with started(config) as service:
        after = change(service)
        assert len(after) == 20
        assert after["fresh"] == ("c", NEW[0].tolist())
    for _ in range(2):
        with started(config) as service:
            assert contents(service.catalog) == after
            assert service.catalog.labels == ["a", "b", "c"]
            found = service.retrieve(NEW)
            assert found.ids[0, 0] == "item-3"  # the longest vector
            assert "item-2" not in found.ids


def test_changes_survive_a_process_that_was_not_closed(config: Path) -> None:
    service = make_promise_service(load_settings(config, {}))
    after = change(service)
    service.coordinator.ledger.close()  # as a kill would
    with started(config) as again:
        assert contents(again.catalog) == after


def test_groups_that_came_with_changed_items_can_be_promised_in_the_settings(config: Path) -> None:
    with started(config) as service:
        service.items.upsert(NEW, ["c"], ["fresh"])
    with config.open("a") as file:
        file.write('[[promises]]\ngroup = "c"\nfloor = 1\nwindow = {every = "day"}\n')
    with started(config) as service:
        assert service.groups.labels == ["a", "b", "c"]


def test_services_that_share_a_ledger_follow_each_other(config: Path) -> None:
    if "sqlite" in config.read_text():
        pytest.skip("a file has one service")
    with started(config) as one, started(config) as other:
        after = change(one)
        other.refresh()
        assert contents(other.catalog) == after
        other.items.upsert(NEW, ["d"], ["fresher"])
        one.items.upsert(NEW, ["e"], ["freshest"])  # follows the other's change first
        other.refresh()
        assert contents(one.catalog) == contents(other.catalog)
        assert one.catalog.labels == other.catalog.labels == ["a", "b", "c", "d", "e"]
        assert one.retrieve(NEW, ["r1"]).ids.tolist() == other.retrieve(NEW, ["r1"]).ids.tolist()


def test_newer_files_replace_changes_that_are_older(config: Path) -> None:
    with started(config) as service:
        change(service)
    write_items(config.parent, scale=2.0)
    later = time.time() + 60
    os.utime(config.parent / "items" / "catalog.json", (later, later))
    with started(config) as service:
        assert contents(service.catalog) == contents(open_catalog(config.parent / "items"))


def test_other_files_that_are_older_do_not_replace_changes(config: Path) -> None:
    with started(config) as service:
        after = change(service)
    write_items(config.parent, scale=2.0)
    earlier = time.time() - 3600
    os.utime(config.parent / "items" / "catalog.json", (earlier, earlier))
    with started(config) as service:
        now = contents(service.catalog)
    assert now.keys() == after.keys()
    assert {name: now[name] for name in ("fresh", "item-1", "item-3")} == {
        name: after[name] for name in ("fresh", "item-1", "item-3")
    }


def test_an_export_takes_changes_in_and_later_ones_still_apply(config: Path) -> None:
    out = config.parent / "exported"
    with started(config) as service:
        after = change(service)
        done = CliRunner().invoke(app, ["export", str(config), "--out", str(out)])  # while the service runs
        assert done.exit_code == 0, done.output
        service.items.upsert(4 * NEW, ["a"], ["latest"])
    assert contents(open_catalog(out)) == after
    assert json.loads((out / "catalog.json").read_text())["changes"] == open_catalog(out).changes
    text = config.read_text().replace('path = "items"', 'path = "exported"')
    config.write_text(text)
    with started(config) as service:
        assert contents(service.catalog) == {**after, "latest": ("a", (4 * NEW)[0].tolist())}


def test_invalid_changes_are_refused_and_not_saved(config: Path) -> None:
    with started(config) as service:
        before = contents(service.catalog)
        with pytest.raises(InvalidInputError, match="dimensions"):
            service.items.upsert(np.ones((1, DIM + 1)), ["a"], ["wrong"])
        with pytest.raises(InvalidInputError, match="no item"):
            service.items.remove(["item-1", "unknown"])
        with pytest.raises(InvalidInputError, match="k is 3"):
            service.items.remove([f"item-{number}" for number in range(18)])
        assert contents(service.catalog) == before
    with started(config) as service:
        assert contents(service.catalog) == before


@pytest.fixture
def shop(config: Path) -> Path:
    """Return the configuration of a service whose items have attributes."""
    write_shop(config.parent)
    return config


def write_shop(folder: Path, scale: float = 1.0, *, without: str = "") -> None:
    rng = np.random.default_rng(0)
    attributes = {
        "category": ["a", "b"] * 10,
        "in_stock": [True] * 20,
        "price": np.arange(20.0),
        "tags": [["new"]] * 20,
    }
    attributes.pop(without, None)
    names = [f"item-{number}" for number in range(20)]
    save_catalog(Catalog((scale * rng.normal(size=(20, DIM))).astype(np.float32), attributes, names), folder / "items")


def everything(catalog: Catalog) -> dict[str, tuple[object, ...]]:
    """Return embedding and attributes of each item."""
    columns = [column.values() for column in catalog.attributes.values()]
    return dict(zip(catalog.ids.tolist(), zip(catalog.embeddings.tolist(), *columns, strict=True), strict=True))


def change_attributes(service: PromiseService) -> dict[str, tuple[object, ...]]:
    """Change attributes of items: of the files, of an item that was added, and of one that was changed before."""
    before = service.front.index
    service.items.upsert(None, {"in_stock": [False, False]}, ["item-1", "item-2"])
    service.items.upsert(None, {"price": [99]}, ["item-1"])
    assert service.front.index is before, "no vector was touched"
    new = {"category": ["c"], "in_stock": [True], "price": [5.0], "tags": [["sale", "new"]]}
    service.items.upsert(NEW, new, ["fresh"])
    service.items.upsert(None, {"in_stock": [False], "tags": [[]]}, ["fresh"])
    service.items.upsert(2 * NEW, {}, ["item-4"])
    service.items.upsert(None, {"category": ["b"]}, ["item-6"])
    service.items.remove(["item-7"])
    return everything(service.catalog)


def test_attributes_survive_a_restart(shop: Path) -> None:
    with started(shop) as service:
        files = everything(service.catalog)
        after = change_attributes(service)
        assert after["item-1"][1:] == ("b", False, 99.0, ["new"])
        assert after["item-1"][0] == files["item-1"][0]
        assert after["fresh"] == (NEW[0].tolist(), "c", False, 5.0, [])
        assert after["item-4"] == ((2 * NEW[0]).tolist(), *files["item-4"][1:])
        assert after["item-6"] == (files["item-6"][0], "b", *files["item-6"][2:])
        assert "item-7" not in after
        assert "item-2" in after
        found = service.retrieve(NEW, where={"in_stock": False}, k=4)
        assert {*found.ids[0].tolist()} == {"item-1", "item-2", "fresh", ""}
    for _ in range(2):
        with started(shop) as service:
            assert everything(service.catalog) == after


def test_attributes_reach_other_services(shop: Path) -> None:
    if "sqlite" in shop.read_text():
        pytest.skip("a file has one service")
    with started(shop) as one, started(shop) as other:
        after = change_attributes(one)
        other.refresh()
        assert everything(other.catalog) == after
        other.items.upsert(None, {"price": [1.5]}, ["fresh"])
        one.refresh()
        assert everything(one.catalog) == everything(other.catalog)


def test_changed_attributes_do_not_bring_old_embeddings_back(shop: Path) -> None:
    """The files get new embeddings, and include the changes so far. Attributes that change later keep the new ones."""
    with started(shop) as service:
        service.items.upsert(2 * NEW, {"price": [7.0]}, ["item-1"])
        service.items.upsert(None, {"in_stock": [False]}, ["item-2"])
    time.sleep(0.1)  # the clock of the file system may be coarse
    write_shop(shop.parent, scale=3.0)
    with started(shop) as service:
        files = everything(service.catalog)
        assert files["item-1"][2:4] == (True, 1.0), "the files are newer than the changes"
        service.items.upsert(None, {"in_stock": [False]}, ["item-1"])
        after = everything(service.catalog)
        assert after["item-1"] == (files["item-1"][0], "b", False, 1.0, ["new"])
    with started(shop) as service:
        assert everything(service.catalog) == after


def test_changes_that_no_longer_fit_the_files_are_left_out(shop: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The files were written before the changes, by another process that was late, and have one attribute less."""
    with started(shop) as service:
        service.items.upsert(None, {"in_stock": [False], "price": [3.5]}, ["item-1"])
        service.items.upsert(None, {"in_stock": [False]}, ["item-2"])
    write_shop(shop.parent, without="price")
    for file in (shop.parent / "items").iterdir():
        os.utime(file, (0, 0))
    with caplog.at_level("WARNING"), started(shop) as service:
        sold_out = [name for name, row in everything(service.catalog).items() if row[2] is False]
    assert sold_out == ["item-2"]
    assert "1 changed items are left out" in caplog.text


def test_unknown_attributes_and_wrong_values_are_refused_before_anything_is_saved(shop: Path) -> None:
    with started(shop) as service:
        before = everything(service.catalog)
        wrong: list[tuple[dict[str, list[object]], str]] = [
            ({"in_stok": [False]}, "did you mean 'in_stock'"),
            ({"in_stock": ["no"]}, "bool"),
            ({"in_stock": [False, True]}, "must have 1 values"),
        ]
        for attributes, message in wrong:
            with pytest.raises(InvalidInputError, match=message):
                service.items.upsert(None, attributes, ["item-1"])
        with pytest.raises(InvalidInputError, match="give embeddings"):
            service.items.upsert(None, {"in_stock": [False]}, ["nobody"])
        assert everything(service.catalog) == before
    with started(shop) as service:
        assert everything(service.catalog) == before


def test_an_item_that_is_named_twice_is_removed_once(config: Path) -> None:
    with started(config) as service:
        service.items.remove(["item-3", "item-4", "item-3"])
        assert len(service.catalog) == 18
    with started(config) as service:
        assert len(service.catalog) == 18
