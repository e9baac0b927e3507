"""``fairsync cluster`` as it is used, on a real cluster."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("ray")

from fairsync.catalog import Catalog
from fairsync.catalog.files import open_catalog, save_catalog
from fairsync.cli import app
from fairsync.ledger import SqlLedger
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex
from fairsync.search.ray import RayIndex
from fairsync.service.search_settings import make_search
from fairsync.service.settings import parse_settings
from search.ray_cluster import RayCluster

RNG = np.random.default_rng(0)
CATALOG = Catalog(RNG.normal(size=(300, 8)).astype(np.float32), ["red"] * 200 + ["blue"] * 100)
USERS = RNG.normal(size=(120, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster(nodes=2, cpus=4) as running:
        yield running


def run(*arguments: object) -> Any:
    given = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, ["cluster", *given], env={"COLUMNS": "120", "NO_COLOR": "1"})


def status_when_up(items: Path, replicas: int) -> Any:
    """Return the status once all replicas have answered: on a busy machine a ping may take longer than a second."""
    for _ in range(120):
        looked = run("status", items)
        assert looked.exit_code == 0, looked.output
        if looked.output.count(" up ") == replicas:
            return looked
    raise AssertionError(looked.output)


def test_from_start_to_stop(cluster: RayCluster, tmp_path: Path) -> None:
    """And again from the same ledger, which goes on where it was."""
    items, ledger, users, out = (tmp_path / name for name in ("items", "a.db", "users.npy", "found.npz"))
    floors = tmp_path / "floors.json"
    save_catalog(CATALOG, items)
    np.save(users, USERS[:60])
    floors.write_text(json.dumps({"blue": 700}))
    promise = ["--ledger", ledger, "--horizon", "120", "--k", "10", "--floors", floors]
    shown: Counter[str] = Counter()
    alone = FairRetriever(CATALOG, k=10, floors={"blue": 700}, horizon=120)
    for number, half in enumerate((USERS[:60], USERS[60:])):
        started = run("start", items, *promise, "--shards", "3", "--replicas", "2")
        assert started.exit_code == 0, started.output
        assert "3 shards × 2" in started.output
        np.save(users, half)
        answered = run("retrieve", items, users, "--out", out)
        assert answered.exit_code == 0, answered.output
        assert "60 requests answered, 0 of them without" in answered.output
        with np.load(out) as found:
            shown.update(found["groups"].ravel().tolist())
            assert (found["searched"] == 1).all()
            if number == 0:  # then with prices learnt anew in part, hence perhaps others
                assert found["ids"].tolist() == alone.retrieve(half).ids.tolist()
        looked = status_when_up(items, replicas=6)
        assert "blue" in looked.output
        assert run("stop").exit_code == 0
    assert shown["blue"] >= 700
    with SqlLedger(ledger, 2) as record:
        assert record.totals().requests == 120
        assert record.totals().exposures.tolist() == [shown["blue"], shown["red"]]


def test_what_cannot_be_done_is_told(cluster: RayCluster, tmp_path: Path) -> None:
    items = tmp_path / "items"
    save_catalog(CATALOG, items)
    promise = ["--ledger", tmp_path / "a.db", "--horizon", "10"]
    for arguments, message in (
        (["start", tmp_path / "none", *promise], "does not exist"),
        (["start", items, *promise, "--floor", "999"], "cannot be met"),
        (["start", items, *promise, "--replicas", "5", "--place-within", "1"], "Add nodes"),
        (["status", items], "there is no index"),
        (["stop"], "nothing runs"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1
        assert message in " ".join(result.output.split()), result.output
    assert run("stop").exit_code == 1, "nothing of what failed is left"


@pytest.mark.usefixtures("cluster")
def test_the_service_searches_the_shards(tmp_path: Path) -> None:
    save_catalog(CATALOG, tmp_path / "items")
    items = open_catalog(tmp_path / "items")
    with RayIndex(items, 2, name="shop"):
        search = parse_settings({"catalog": {"path": "items"}, "search": {"engine": "ray", "ray": "shop"}}).search
        index = make_search(search, items)
        found, exact = index.search(USERS[:5, None], None, 10), ExactIndex(CATALOG).search(USERS[:5, None], None, 10)
        assert found.rows.tolist() == exact.rows.tolist()
