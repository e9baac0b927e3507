"""``fairsync evaluate`` as it is used: on a trained model, and on vectors of one's own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from fairsync.cli import app
from fairsync.data import Dataset, replay, split_by_users
from fairsync.models import load_model, recall_of
from tastes import tasteful


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "100", "NO_COLOR": "1"})


def evaluate(*arguments: object) -> Any:
    return run("evaluate", *arguments)


def mixed(data: Dataset) -> Dataset:
    """Return the data set with users who come in turns, not one after the other."""
    lengths = data.sequences.lengths
    times = np.concatenate([np.sort(np.random.default_rng(n).choice(10**6, n, replace=False)) for n in lengths])
    return Dataset(data.facts, data.user_ids, data.item_ids, data.item_groups, data.sequences, times)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a data set and two models, as the commands before would leave it."""
    folder = tmp_path_factory.mktemp("home")
    mixed(tasteful(300)).save(folder / "data" / "tastes")
    for split in ("users", "time"):
        result = run("train", folder / "data" / "tastes", "--split", split, "--split-seed", 3, "--out", folder / split)
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the vectors of another library, and go there."""
    rng = np.random.default_rng(2)
    np.save(tmp_path / "items.npy", rng.normal(size=(60, 5)))
    np.save(tmp_path / "users.npy", rng.normal(size=(30, 5)))
    pl.DataFrame({"item": [f"i{n}" for n in range(60)], "group": [f"g{n % 4}" for n in range(60)]}).write_parquet(
        tmp_path / "groups.parquet"
    )
    pl.DataFrame({"user": range(30), "item": [f"i{n}" for n in range(30)]}).write_parquet(tmp_path / "targets.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


OWN = ["--items", "items.npy", "--users", "users.npy", "--groups", "groups.parquet"]


def test_a_trained_model_on_its_test_users(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(home)  # where data/tastes is found by its name
    result = evaluate("users", "--k", 5, "--k", 20, "--include-history", "--json", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / "evaluation.json").read_text(encoding="utf-8"))
    assert (tmp_path / "exposures.png").read_bytes()[:4] == b"\x89PNG"
    test = split_by_users(Dataset.load(home / "data" / "tastes"), seed=3).test
    assert document["requests"] == len(test)
    for one in document["results"]:
        assert one["recall"] == pytest.approx(recall_of(load_model(home / "users"), test, one["k"]))
        assert sum(row["exposures"] for row in one["groups"]) == one["k"] * len(test)


def test_policies_side_by_side(home: Path) -> None:
    result = evaluate(
        home / "users", "--data", home / "data" / "tastes", "--k", 5, "--policy", "none", "--policy", "guaranteed",
        "--floor", 12,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    for words in ("svd on tastes, 30 requests (users)", "none", "guaranteed", "K = 5", "Recall", "relevance kept"):
        assert words in result.stdout
    [esp] = [line.split() for line in result.stdout.splitlines() if line.split()[:1] == ["ESP"]]
    assert esp[-1] == "100.0%"


def test_a_replay_asks_every_visit(home: Path) -> None:
    data = home / "data" / "tastes"
    result = evaluate(home / "time", "--data", data, "--requests", "replay", "--k", 5, "--include-history", "--json")
    document = json.loads(result.stdout)
    visits = replay(Dataset.load(data))
    assert document["requests"] == len(visits)
    assert document["results"][0]["recall"] == pytest.approx(recall_of(load_model(home / "time"), visits, 5))


def test_the_history_is_left_out_unless_it_is_asked_for(home: Path) -> None:
    """Of candidates and of targets, compared with a plain sort."""
    data = home / "data" / "tastes"
    document = json.loads(evaluate(home / "time", "--data", data, "--requests", "replay", "--k", 5, "--json").stdout)
    model, visits = load_model(home / "time"), replay(Dataset.load(data))
    scores = model.user_vectors(visits.histories).astype(np.float64) @ model.item_vectors().astype(np.float64).T
    left_out, recalls = 0, []
    for one, history, wanted in zip(scores, visits.histories.tolist(), visits.targets, strict=True):
        seen = {row for row in history if row >= 0}
        targets = set(wanted.tolist()) - seen
        left_out += len(wanted) - len(targets)
        best = [row for row in np.argsort(-one, kind="stable").tolist() if row not in seen][:5]
        if targets:
            recalls.append(len(targets & set(best)) / len(targets))
    assert left_out > 0
    assert (document["excludes_history"], document["targets_in_history"]) == (True, left_out)
    assert document["results"][0]["recall"] == pytest.approx(np.mean(recalls))
    said = evaluate(home / "time", "--data", data, "--requests", "replay", "--k", 5).stdout
    assert "--include-history" in said


def test_vectors_of_ones_own(files: Path) -> None:
    document = json.loads(evaluate(*OWN, "--targets", "targets.parquet", "--k", 3, "--json").stdout)
    [one] = document["results"]
    best = np.argsort(-(np.load("users.npy") @ np.load("items.npy").T), axis=1)[:, :3]
    assert one["recall"] == pytest.approx(np.mean([user in best[user] for user in range(30)]))
    counts = np.bincount(best.ravel() % 4, minlength=4)
    assert [row["exposures"] for row in one["groups"]] == counts.tolist()


def test_floors_from_a_file(files: Path) -> None:
    (files / "floors.json").write_text('{"g1": 25, "g2": 30}')
    result = evaluate(*OWN, "--policy", "guaranteed", "--floors", "floors.json", "--k", 3, "--json")
    rows = {row["group"]: row for row in json.loads(result.stdout)["results"][0]["groups"]}
    assert [rows[f"g{n}"]["floor"] for n in range(4)] == [0, 25, 30, 0]
    assert rows["g1"]["exposures"] >= 25
    assert rows["g2"]["exposures"] >= 30
    text = evaluate(*OWN, "--k", 3).stdout
    assert "No targets were given (--targets)" in text
    assert "Recall" not in text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "--items, --users missing"),
        (OWN[:4], "items.npy holds vectors only: give a table with the group of each item (--groups)"),
        ([*OWN, "--requests", "time"], "are for a model"),
        (["folder", *OWN], "--items is for vectors of your own"),
        (["folder"], "folder is not a model"),
        ([*OWN, "--policy", "guaranteed"], "has nothing to keep without floors"),
        ([*OWN, "--policy", "fair"], "There is no policy 'fair'"),
        ([*OWN, "--floor", "9", "--floors", "floors.json"], "not both"),
        ([*OWN, "--floors", "none.json"], "none.json cannot be read"),
        ([*OWN, "--floors", "list.json"], "must hold {label: exposures}, got a list"),
        ([*OWN, "--floors", "wrong.json"], "no group 'g9'"),
        ([*OWN, "--floor", "1000", "--policy", "guaranteed"], "The largest feasible"),
        ([*OWN[:2], "--users", "wide.npy", *OWN[4:]], "wide.npy has 7 dimensions and items.npy 5"),
        ([*OWN, "--k", "61"], "choose a smaller k"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(arguments: list[str], why: str, files: Path) -> None:
    (files / "list.json").write_text("[1]")
    (files / "wrong.json").write_text('{"g9": 1}')
    np.save(files / "wide.npy", np.ones((3, 7)))
    result = evaluate(*arguments, "--out", "out")
    assert result.exit_code == 1, result.output
    assert why in result.stderr
    assert result.stderr.strip().count("\n") == 0
    assert result.stdout == ""
    assert not (files / "out").exists()


def test_a_model_is_not_asked_what_it_has_seen(home: Path, tmp_path: Path) -> None:
    data = home / "data" / "tastes"
    for model, requests in (("users", "time"), ("users", "replay"), ("time", "users")):
        result = evaluate(home / model, "--data", data, "--requests", requests)
        assert f"has seen answers of the requests '{requests}'" in result.stderr
    assert "say where the model's is (--data)" in evaluate(home / "users").stderr
    other = tasteful(50)
    Dataset(other.facts, other.user_ids, np.char.add(other.item_ids, "x"), *list(vars(other).values())[3:]).save(
        tmp_path / "other"
    )
    assert "was made for other items" in evaluate(home / "users", "--data", tmp_path / "other").stderr


def test_help_teaches() -> None:
    text = evaluate("--help").stdout
    for words in ("fairsync evaluate models/", "--policy none --policy", "Your own vectors"):
        assert words in text


def test_requests_without_a_known_history_are_named(files: Path) -> None:
    users = np.load("users.npy")
    assert "without a known history" not in evaluate(*OWN, "--k", 5).stdout
    users[[3, 9]] = 0
    np.save("users.npy", users)
    assert "2 requests without a known history" in evaluate(*OWN, "--k", 5).stdout
    assert json.loads(evaluate(*OWN, "--k", 5, "--json").stdout)["cold_requests"] == 2


def test_promises_that_overlap(files: Path) -> None:
    frame = pl.read_parquet("groups.parquet")
    new = pl.Series("new", [n % 6 == 0 for n in range(60)])
    frame.with_columns(new).write_parquet("groups.parquet")
    options = ["--each", "group at_least=15", "--promise", "new=true at_least=25%", "--k", 3]
    result = evaluate(*OWN, *options, "--policy", "none", "--policy", "guaranteed")
    assert result.exit_code == 0, result.output
    for words in ("promises kept", "5 of 5", "Promises at K = 3", "new=True", "group=g0"):
        assert words in result.stdout
    document = json.loads(evaluate(*OWN, *options, "--policy", "guaranteed", "--json").stdout)
    rows = {row["name"]: row for row in document["results"][0]["promises"]}
    assert rows["new=True"]["at_least"] == 23
    assert all(row["kept"] for row in rows.values())
    for wrong, why in (
        ([*options, "--floor", "9", "--policy", "guaranteed"], "give floors or promises, not both"),
        (["--promise", "colour=red at_least=1"], "'colour' is no attribute and no bound"),
        ([*options, "--policy", "ipw"], "ipw"),
    ):
        assert why in evaluate(*OWN, *wrong).stderr
