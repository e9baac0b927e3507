import io
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fairsync.catalog import Catalog
from fairsync.search import ExactIndex

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks.cost import Outcome, Row

from benchmarks import cost, embeddings, loop, output


def outcome(ratio: float, esp: float = 1.0, rate: float | None = None, order: int = 0) -> Outcome:
    return Outcome(order, ratio, esp, forced=0, seconds=0.0, rate=rate)


def row(method: str, batch: int, *outcomes: Outcome, long: bool = False) -> Row:
    return Row("set", 20, long, batch, method, outcomes)


def screen() -> Console:
    return Console(file=io.StringIO(), width=160)


def test_the_floor_is_what_the_middle_group_gets() -> None:
    assert cost.median_floor([0, 900, 7]) == 7
    assert cost.median_floor([1, 2, 5, 100]) == 3  # between two: rounded down


def test_the_floor_leaves_half_of_the_groups_in_need() -> None:
    items, groups, users, _ = cost.generate(np.array([300, 40, 30, 20, 10]), 200, 0, seed=1)
    exposures = cost.plain_exposures(Catalog(items, groups), users, k=5)
    assert sum(exposures) == 200 * 5
    assert sum(count < cost.median_floor(exposures) for count in exposures) == 2


def test_tuning_takes_the_cheapest_that_keeps_every_floor() -> None:
    trials = [outcome(0.9, esp=0.99, rate=1.0), outcome(3.0, rate=2.0), outcome(2.0, rate=3.0), outcome(9.0, rate=4.0)]
    assert cost.tune(trials).rate == 3.0


def test_tuning_takes_the_highest_esp_if_no_rate_keeps_every_floor() -> None:
    trials = [outcome(0.1, esp=0.5, rate=1.0), outcome(5.0, esp=0.98, rate=2.0), outcome(4.0, esp=0.98, rate=3.0)]
    best = cost.tune(trials)
    assert best.rate == 3.0
    assert row(cost.FAIRSYNC, 16, best).cells() == ["not comparable", "98 %", "3"]


def test_a_missed_floor_never_reads_as_all() -> None:
    assert cost.esp_text(1999 / 2000) == "99.9 %"
    assert cost.esp_text(1.0) == "100 %"


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        (row(cost.COLD, 64, outcome(1.2), outcome(1.32, order=1)), "cold, B ≤ 64"),
        (row(cost.COLD, 256, outcome(1.51)), "cold, B > 64"),
        (row(cost.CALIBRATED, 512, outcome(1.26)), "calibrated"),
        (row(cost.COLD, 16, outcome(1.06), long=True), "long horizon"),
        (row(cost.COLD, 16, outcome(1.0, esp=0.999)), "ESP"),
        (row(cost.COLD, 16, outcome(float("nan"))), "cold, B ≤ 64"),
    ],
)
def test_each_claim_can_be_broken(broken: Row, what: str) -> None:
    fine = [
        row(cost.COLD, 16, outcome(1.25)),
        row(cost.COLD, 512, outcome(1.5)),
        row(cost.CALIBRATED, 512, outcome(1.25)),
        row(cost.COLD, 512, outcome(1.05), long=True),
        row(cost.FAIRSYNC, 16, outcome(40.0, esp=0.5)),  # of which nothing is claimed
    ]
    assert [claim.met for claim in cost.check_claims(fine)] == [True] * 5
    assert [claim.what for claim in cost.check_claims([broken, *fine]) if not claim.met and what in claim.what]
    assert sum(not claim.met for claim in cost.check_claims([*fine, broken])) == 1


def test_the_loop_claim_is_for_large_catalogs_and_batches() -> None:
    def figure(items: int, batch: int, share: float) -> loop.Measurement:
        return loop.Measurement(items, batch, 100, 1.0, 1.0, share, 1.0, 1.0)

    free = [figure(30_000, 64, 0.5), figure(300_000, 1, 0.5)]
    assert loop.check_claims(free) == []
    assert loop.check_claims([*free, figure(300_000, 16, 0.05)])[0].met
    assert not loop.check_claims([*free, figure(300_000, 16, 0.02), figure(300_000, 64, 0.06)])[0].met


def test_a_claim_decides_the_exit_code_and_is_written(tmp_path: Path) -> None:
    table = output.Table("title", ["a", "b"], [["x|y", "1"]])
    shown = screen()
    claims = [output.Claim("slow", 1.3, 1.25), output.Claim("fast", 2.5, 2.0, at_most=False)]
    assert output.finish("some", [table], claims, {"a": 1}, tmp_path, shown) == 1
    assert output.finish("other", [table], claims[1:], {"a": 1}, tmp_path, shown) == 0
    assert [claim["met"] for claim in json.loads((tmp_path / "some.json").read_text())["claims"]] == [False, True]
    text = (tmp_path / "some.md").read_text()
    assert "| a | b |\n| --- | ---: |\n| x\\|y | 1 |" in text
    assert "NOT met: slow: 1.3 (claimed ≤ 1.25)" in text
    assert isinstance(shown.file, io.StringIO)
    assert "NOT met: slow" in shown.file.getvalue()


def test_users_are_split_and_none_is_in_two_parts() -> None:
    sequences = {str(user): [user] * 3 for user in range(50)}
    split = embeddings.split_users(sequences, seed=0)
    parts = [{items[0] for items in part} for part in (split.train, split.validation, split.test)]
    assert [len(part) for part in parts] == [40, 5, 5]
    assert set().union(*parts) == set(range(50))
    assert split == embeddings.split_users(dict(reversed(sequences.items())), seed=0)
    assert split != embeddings.split_users(sequences, seed=1)


@pytest.mark.parametrize("length", [1, 2, 5, 9, 40])
def test_targets_come_after_the_history(length: int) -> None:
    history, targets = embeddings.history_and_targets(list(range(length)), 20)
    assert history
    assert len(history) <= 20
    assert history + targets == list(range(targets[0] - len(history) if targets else 0, length))
    assert len(targets) == length - max(1, int(0.8 * length))


def test_small_groups_become_one() -> None:
    merged = embeddings.merge_infrequent(["a"] * 3 + ["b"] * 2 + ["c"], least=3)
    assert merged.tolist() == ["a"] * 3 + [embeddings.INFREQUENT] * 3


def test_padding_is_no_item() -> None:
    assert embeddings.padded([[4], [1, 2]], 3, padding=9).tolist() == [[4, 9, 9], [1, 2, 9]]


def test_recall_counts_each_target_once() -> None:
    items = np.eye(30, dtype=np.float32)
    users = np.linspace(1, 2, 30, dtype=np.float32)[None].repeat(2, axis=0)  # the best 20 are items 10 to 29
    assert embeddings.recall_at_20(users, items, [[29, 29, 0], []]) == 0.5


def write_set(folder: Path, users: int = 60, items: int = 40) -> None:
    polars = pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    folder.mkdir()
    # Users visit a stretch of ten items, written down backwards; item names are not their rows.
    visits = [
        (f"u{user}", f"i{(start + 7 * step) % items}", step)
        for user, start in enumerate(rng.integers(items, size=users).tolist())
        for step in reversed(range(10))
    ]
    columns = dict(zip(("user", "item", "timestamp"), zip(*visits, strict=True), strict=True))
    polars.DataFrame(columns).write_parquet(folder / "interactions.parquet")
    names = {"item": [f"i{i}" for i in reversed(range(items))], "group": ["g", "h"] * (items // 2)}
    polars.DataFrame(names).write_parquet(folder / "items.parquet")


def test_what_is_read_is_in_order_of_time(tmp_path: Path) -> None:
    write_set(tmp_path / "tiny")
    split, groups = embeddings.read(tmp_path / "tiny", embeddings.Settings(least_items=2), seed=0)
    assert sorted(set(groups.tolist())) == ["g", "h"]
    for part in (split.train, split.validation, split.test):
        for rows in part:
            names = [39 - at for at in rows]
            assert {(later - earlier) % 40 for earlier, later in itertools.pairwise(names)} == {7}
            history, targets = embeddings.history_and_targets(rows, 20)
            assert not set(history) & set(targets)


def test_training_learns_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    write_set(tmp_path / "tiny", users=200, items=200)
    monkeypatch.setattr(embeddings, "CACHE", tmp_path / "cache")
    settings = embeddings.Settings(dim=16, negatives=50, least_items=2, learning_rate=0.02, epochs=4)
    bar = output.progress(screen())
    first = embeddings.load("tiny", tmp_path, 0, bar, settings)
    assert first.items.shape == (200, 16)
    assert first.items.dtype == np.float32
    assert (len(first.past), len(first.users)) == (20, 20)
    assert first.recall > 2 * 20 / 200  # chance finds one target in ten
    (file,) = (tmp_path / "cache").iterdir()
    file.unlink()
    again = embeddings.load("tiny", tmp_path, 0, bar, settings)
    assert np.array_equal(first.users, again.users)
    other = embeddings.load("tiny", tmp_path, 1, bar, settings)
    assert not np.array_equal(first.users, other.users)
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_cost_runs_from_end_to_end_without_the_data_folder(tmp_path: Path) -> None:
    size = ["--items", "600", "--groups", "8", "--requests", "240", "--past", "60", "--floor", "40"]
    runs = ["--batch-sizes", "16", "64", "--seeds", "0", "1"]
    places = ["--data", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    shown = screen()
    code = cost.main(["--quick", *size, *runs, *places], shown)
    assert isinstance(shown.file, io.StringIO)
    assert "running on the generated set only" in shown.file.getvalue()
    result = json.loads((tmp_path / "out" / "cost.json").read_text())
    assert code == (0 if all(claim["met"] for claim in result["claims"]) else 1)
    assert [(row["batch"], row["method"]) for row in result["rows"]] == [
        (batch, method) for batch in (16, 64) for method in (cost.COLD, cost.CALIBRATED, cost.FAIRSYNC)
    ]
    assert result["worlds"][0]["plain_esp"] < 1
    for row in result["rows"]:
        if row["method"] != cost.FAIRSYNC:
            assert row["esp"] == 1
            assert len(row["outcomes"]) == 2
            assert min(outcome["ratio"] for outcome in row["outcomes"]) >= 1 - 1e-9  # nobody beats hindsight
    assert len(result["tuning"]) == 2 * len(cost.SHORT_GRID)
    assert "| generated | 20 | 16 |" in (tmp_path / "out" / "cost.md").read_text()


def test_the_timed_index_gives_the_same_answer_and_the_time() -> None:
    items, groups, users, _ = cost.generate(np.array([50, 10]), 4, 0, seed=0)
    index = ExactIndex(Catalog(items, groups))
    timed = loop.TimedIndex(index)
    assert np.array_equal(timed.search(users[:, None], None, 3).rows, index.search(users[:, None], None, 3).rows)
    assert timed.seconds > 0
