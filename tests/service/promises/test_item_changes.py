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
    service.upsert_items(NEW, ["c"], ["fresh"])
    service.upsert_items(2 * NEW, ["a"], ["item-1"])
    service.remove_items(["item-2", "item-3"])
    service.upsert_items(3 * NEW, ["b"], ["item-3"])
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
        service.upsert_items(NEW, ["c"], ["fresh"])
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
        other.upsert_items(NEW, ["d"], ["fresher"])
        one.upsert_items(NEW, ["e"], ["freshest"])  # follows the other's change first
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
        service.upsert_items(4 * NEW, ["a"], ["latest"])
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
            service.upsert_items(np.ones((1, DIM + 1)), ["a"], ["wrong"])
        with pytest.raises(InvalidInputError, match="no item"):
            service.remove_items(["item-1", "unknown"])
        with pytest.raises(InvalidInputError, match="k is 3"):
            service.remove_items([f"item-{number}" for number in range(18)])
        assert contents(service.catalog) == before
    with started(config) as service:
        assert contents(service.catalog) == before
