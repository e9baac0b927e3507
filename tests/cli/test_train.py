"""``fairsync train`` as it is used: trained, killed, gone on with, and loaded."""

import json
import os
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from fairsync.cli import app
from fairsync.cli.train_progress import TrainingDisplay
from fairsync.data.dataset import Dataset
from fairsync.data.splits import split_by_users
from fairsync.errors import InvalidInputError
from fairsync.models import (
    Epoch,
    Trained,
    TrainingProgress,
    load_model,
    make_settings,
    read_notes,
    recall_of,
    train_model,
)
from fairsync.models.folder import check_model_target
from sequences import make_dataset
from tastes import tasteful

SMALL = ["--dim", "8", "--batch", "32", "--negatives", "40", "--patience", "50"]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["train", *arguments], env={"COLUMNS": "100", "NO_COLOR": "1"})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "tastes"
    tasteful(200).save(folder)
    return folder


def test_svd_and_what_is_printed(data: Path, tmp_path: Path) -> None:
    result = run(str(data), "--out", str(tmp_path / "model"))
    assert result.exit_code == 0, result.output
    for word in ("validation Recall@20", "best", "Recall@50", "samples/s"):
        assert word in result.stdout
    # The data set is not where evaluate would look for it.
    assert f"Next: fairsync evaluate {tmp_path / 'model'} --data {data}, or" in result.stdout
    model = load_model(tmp_path / "model")
    test = split_by_users(Dataset.load(data)).test
    assert f"Recall@20 {recall_of(model, test):.4f}" in result.stdout
    assert model.item_ids.tolist() == Dataset.load(data).item_ids.tolist()
    notes = read_notes(tmp_path / "model")
    assert (notes["data"], notes["split"], notes["split_seed"]) == ("tastes", "users", 0)


def test_epochs_are_shown_as_they_end_with_the_time_that_is_left() -> None:
    screen, now = Console(file=StringIO(), width=100), [0.0]
    settings = make_settings("mind", epochs=10, patience=2)
    display = TrainingDisplay(screen, "mind", settings, 20, clock=lambda: now[0])
    epochs = [Epoch(4.5, 0.1, 6.0, 100), Epoch(4.25, 0.3, 6.0, 100), Epoch(4.0, 0.2, 6.0, 100)]

    def lines() -> list[str]:
        return [line.rstrip() for line in screen.file.getvalue().splitlines()]  # type: ignore[attr-defined]

    with display:
        now[0] = 3.0
        display.show(TrainingProgress(50, 100, 4.6, ()))
        assert lines() == []  # too early to tell
        now[0] = 12.0
        display.show(TrainingProgress(50, 100, 4.3, tuple(epochs[:1])))
        # 8 s an epoch. At least the one under way and another, if neither is better; at most 9.
        assert lines()[-1] == "This will take 12 s to 68 s."
        display.show(TrainingProgress(50, 100, 4.1, tuple(epochs[:2])))
        display.finish(Trained(None, tuple(epochs), 1))  # type: ignore[arg-type]
    assert lines() == [
        "epoch      loss  validation Recall@20  seconds",
        "    1    4.5000                0.1000      6.0  best",
        "This will take 12 s to 68 s.",
        "    2    4.2500                0.3000      6.0  best",
        "    3    4.0000                0.2000      6.0",
        "The best epoch, 2, is kept.",
    ]


def test_one_thread_by_default_and_restored_afterwards(data: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    before, seen = torch.get_num_threads(), set()
    dataset = Dataset.load(data)
    small = make_settings("youtube-dnn", epochs=1, dim=8, history=6)
    for threads in ({}, {"threads": 2}):
        watch = lambda now: seen.add(torch.get_num_threads())  # noqa: E731
        train_model("youtube-dnn", split_by_users(dataset), dataset.item_ids, small, None, watch, **threads)
        assert torch.get_num_threads() == before
    assert seen == {1, 2}


def test_a_small_catalog_has_no_fifty_best(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    visits = [[(place, int(item)) for place, item in enumerate(rng.integers(12, size=6))] for _ in range(60)]
    make_dataset(visits).save(tmp_path / "few")
    spoken = run(str(tmp_path / "few"), "--out", str(tmp_path / "a"))
    assert spoken.exit_code == 0, spoken.output
    assert "validation Recall@12" in spoken.stdout
    assert "Test: Recall@12 1.0000 (" in spoken.stdout  # all there is
    assert "@20" not in spoken.stdout
    assert "@50" not in spoken.stdout
    assert json.loads(run(str(tmp_path / "few"), "--json", "--out", str(tmp_path / "b")).stdout)["test"] == {
        "recall@12": 1
    }


def test_json_and_nothing_else(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "model"
    result = run(str(data), "--model", "mind", "--epochs", "3", "--split", "time", "--json", "--out", str(out), *SMALL)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    document = json.loads(result.stdout)
    recalls = [epoch["recall"] for epoch in document["epochs"]]
    assert len(recalls) == 3
    assert document["best_epoch"] == int(np.argmax(recalls)) + 1
    assert document["settings"]["history"] == 6  # as the data set says
    assert document["samples_per_second"] > 0
    assert document["test"] == read_notes(out)["test"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]  # nothing unfinished is left


def test_errors_are_one_line_and_write_nothing(data: Path, tmp_path: Path) -> None:
    cases = {
        "no epochs": [str(data), "--epochs", "3"],
        "Did you mean": [str(data), "--model", "minds"],
        "not a prepared data set": [str(tmp_path)],
        "seed must be below 2^63": [str(data), "--seed", str(2**63)],
    }
    for words, arguments in cases.items():
        result = run(*arguments, "--out", str(tmp_path / "model"))
        assert result.exit_code == 1
        assert words in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        assert not (tmp_path / "model").exists()


# Killed as soon as the second epoch is saved, in the middle of the training.
KILLED = """
import os, signal
from fairsync.models.checkpoint import Checkpoint
write, written = Checkpoint.write, []
def write_and_die(checkpoint, path):
    write(checkpoint, path)
    written.append(path)
    if len(written) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
Checkpoint.write = write_and_die
"""


def test_killed_and_gone_on_with(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    unfinished = tmp_path / "broken.unfinished"

    def command(out: Path, first: str = "") -> list[str]:
        settings = ["--model", "gru4rec", "--epochs", "12", "--json", *SMALL]
        program = f"{first}\nfrom fairsync.cli import app; app()"
        return [sys.executable, "-c", program, "train", str(data), "--out", str(out), *settings]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command(broken, KILLED), env=environment, stdout=subprocess.DEVNULL, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert unfinished.exists()
    assert not broken.exists()
    documents = []
    for out in (broken, whole):
        found = subprocess.run(command(out), env=environment, check=True, capture_output=True, text=True)
        documents.append(json.loads(found.stdout))
    assert not unfinished.exists()
    for key in ("test", "best_epoch"):
        assert documents[0][key] == documents[1][key]
    np.testing.assert_array_equal(load_model(broken).item_vectors(), load_model(whole).item_vectors())


def test_other_settings_do_not_go_on_with_an_unfinished_training(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "model"
    unfinished = tmp_path / "model.unfinished"
    unfinished.write_bytes(b"torn")
    arguments = [str(data), "--model", "youtube-dnn", "--epochs", "1", "--out", str(out), *SMALL]
    result = run(*arguments)
    assert result.exit_code == 1
    assert "--restart" in result.stderr
    assert run(*arguments, "--restart").exit_code == 0
    assert out.exists()


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "settings.json").write_text("{}")
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidInputError, match="is not a model"):
        check_model_target(folder)
    assert (folder / "thesis.txt").exists()
