"""From a log to a service in three commands: prepare, train, serve. And export, for the same items elsewhere."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fairsync as fs
from fairsync.cli import app
from fairsync.data import Dataset
from fairsync.models import load_model, model_catalog
from fairsync.models.folder import read_model_folder
from fairsync.service.client import Client
from fairsync.service.service_folder import make_service
from service.service_process import free_port, is_ready, wait_until

N = 60


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which a log was prepared and a model was trained, with the commands of a first hour."""
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(0)
    taken = [(user, item) for user in range(80) for item in (rng.integers(0, N // 2, 8) + N // 2 * (user % 2))]
    log = "".join(f"u{user},p{item},{1_600_000_000 + row}\n" for row, (user, item) in enumerate(taken))
    (folder / "log.csv").write_text("user,item,time\n" + log)
    items = [f"p{n},c{n % 3},s{n % 4},{str(n % 5 == 0).lower()},{n}.5,a|t{n % 2}" for n in range(N)]
    (folder / "shop.csv").write_text("item,category,seller,new,price,tags\n" + "\n".join(items))
    before = Path.cwd()
    os.chdir(folder)
    try:
        columns = [word for name in ("category", "seller", "new", "price") for word in ("--group-column", name)]
        run("prepare", "table", "--interactions", "log.csv", "--items", "shop.csv", *columns, "--list-column", "tags",
            "--least-items", 2, "--name", "shop")  # fmt: skip
        said = run("train", "data/shop", "--dim", 8).stdout
    finally:
        os.chdir(before)
    assert "fairsync serve models/shop-svd" in " ".join(said.split())
    return folder


@pytest.fixture
def home(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def expected(catalog: fs.Catalog) -> dict[str, list[Any]]:
    numbers = [int(name.removeprefix("p")) for name in catalog.ids.tolist()]
    return {
        "category": [f"c{n % 3}" for n in numbers],
        "seller": [f"s{n % 4}" for n in numbers],
        "new": [n % 5 == 0 for n in numbers],
        "price": [n + 0.5 for n in numbers],
        "tags": [["a", f"t{n % 2}"] for n in numbers],
    }


def values(catalog: fs.Catalog) -> dict[str, list[Any]]:
    return {name: column.values() for name, column in catalog.attributes.items()}


@pytest.mark.parametrize("out", ["items", "items.parquet"])
def test_export_writes_what_evaluate_and_python_read(out: str, home: Path) -> None:
    run("export", "models/shop-svd", "--out", out)
    catalog = fs.open_catalog(out)
    model = load_model(Path("models/shop-svd"))
    assert values(catalog) == expected(catalog)
    assert (catalog.group_attribute, catalog.ids.tolist()) == ("category", model.item_ids.tolist())
    assert (catalog.embeddings == model.item_vectors()).all()
    np.save("users.npy", model.user_vectors(np.array([[1, 2], [30, 31]])))
    document = json.loads(run("evaluate", "--items", out, "--users", "users.npy", "--k", 5, "--json").stdout)
    assert [row["group"] for row in document["results"][0]["groups"]] == ["c0", "c1", "c2"]
    (home / "services.toml").write_text(f'ledger = "memory://"\n[catalog]\npath = "{out}"\n')
    run("export", "services.toml", "--out", "again.parquet")
    assert values(fs.open_catalog("again.parquet")) == expected(catalog)


def test_a_model_without_attributes_takes_them_from_its_data(home: Path, tmp_path: Path) -> None:
    stored = read_model_folder(Path("models/shop-svd"))
    load_model(Path("models/shop-svd")).save(tmp_path / "old", stored.notes)
    assert values(model_catalog(tmp_path / "old")) == expected(model_catalog(tmp_path / "old"))
    load_model(Path("models/shop-svd")).save(tmp_path / "other", {**stored.notes, "data": "gone"})
    with pytest.raises(fs.InvalidInputError, match="there is no data set data/gone"):
        model_catalog(tmp_path / "other")
    data = Dataset.load(Path("data/shop"))
    Dataset(data.facts, data.user_ids, np.char.add(data.item_ids, "x"), *list(vars(data).values())[3:]).save(
        Path("data/gone")
    )
    with pytest.raises(fs.InvalidInputError, match="was made for other items"):
        model_catalog(tmp_path / "other")


def test_a_service_is_made_once_and_its_settings_are_kept(home: Path, tmp_path: Path) -> None:
    config = make_service(Path("models/shop-svd"), tmp_path / "shop")
    config.write_text(config.read_text().replace("k = 20", "k = 7"))
    items = tmp_path / "shop" / "items" / "catalog.json"
    written = items.stat().st_mtime_ns
    assert make_service(Path("models/shop-svd"), tmp_path / "shop") == config
    assert "k = 7" in config.read_text()
    assert items.stat().st_mtime_ns == written
    run("train", "data/shop", "--dim", 4, "--out", tmp_path / "model")
    make_service(tmp_path / "model", tmp_path / "shop")  # another model: its items take their place
    assert fs.open_catalog(tmp_path / "shop" / "items").dim == 4
    with pytest.raises(fs.InvalidInputError, match="exists and is no service"):
        make_service(tmp_path / "model", tmp_path)
    assert "No problems found" in run("check", make_service(Path("models/shop-svd"), tmp_path / "new")).stdout


@contextmanager
def served(*arguments: str, port: int) -> Iterator[subprocess.Popen[str]]:
    program = "from fairsync.cli import app; app()"
    environ = os.environ | {"FAIRSYNC_HTTP_PORT": str(port)}
    process = subprocess.Popen(
        [sys.executable, "-c", program, "serve", *arguments], stderr=subprocess.PIPE, text=True, env=environ
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_serve_a_model(home: Path) -> None:
    port = free_port()
    with (
        served("models/shop-svd", port=port) as process,
        Client(f"http://127.0.0.1:{port}", attempts=1, timeout=60) as client,
    ):
        wait_until(lambda: process.poll() is not None or is_ready(client))
        found = client.retrieve_for([["p1", "p2", "gone"], ["p40"]], where={"seller": ["s1", "s2"], "tags": "t1"})
        assert found.ids.shape == (2, 20)
        shown = [int(name[1:]) for name in found.ids.ravel().tolist() if name]
        assert shown
        assert all(n % 4 == 1 for n in shown)
        client.upsert_items(None, {"new": [True], "tags": [["b"]]}, ["p1"])
        assert client.retrieve_for([["p2"]], where={"tags": "b"}).ids[0, 0] == "p1"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    for words in ("services/shop-svd/service.toml", "max_exclude = 20", f"Dashboard: http://127.0.0.1:{port}/"):
        assert words in said
    assert "No problems found" in run("check", "services/shop-svd").stdout
    run("export", "services/shop-svd", "--out", "changed.parquet")
    catalog = fs.open_catalog("changed.parquet")
    assert values(catalog)["tags"][catalog.ids.tolist().index("p1")] == ["b"]
