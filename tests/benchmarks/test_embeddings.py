"""The embeddings of the cost benchmark."""

import io
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package


from benchmarks import embeddings, output


def screen() -> Console:
    return Console(file=io.StringIO(), width=160)


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


def test_training_learns_and_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
