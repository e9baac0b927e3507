"""``fairsync train``: train a model that gives vectors of items and users."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fairsync.cli.train_progress import TrainingDisplay
from fairsync.data.dataset import Dataset
from fairsync.data.splits import Split, split_by_time, split_by_users
from fairsync.errors import InvalidInputError
from fairsync.models import MODELS, make_settings, recall_of, train_model
from fairsync.models.folder import check_model_target

if TYPE_CHECKING:
    from fairsync.models import Trained


class SplitName(StrEnum):
    """How the data set is split."""

    users = "users"
    time = "time"


_OWN = "Default: that of the model."


def train(
    data: Annotated[Path, typer.Argument(help="Folder of a prepared data set, from 'fairsync prepare'.")],
    model: Annotated[str, typer.Option(help=f"One of {', '.join(MODELS)}. All but svd need torch.")] = "svd",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the model. Default: models/DATA-MODEL.", show_default=False, file_okay=False),
    ] = None,
    split: Annotated[
        SplitName,
        typer.Option(help="Test on users that were not trained on, or on later interactions."),
    ] = SplitName.users,
    split_seed: Annotated[int, typer.Option(min=0, help="Random seed of the split by users.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the training.")] = 0,
    dim: Annotated[int | None, typer.Option(min=1, help=f"Dimensions of a vector. {_OWN}")] = None,
    interests: Annotated[int | None, typer.Option(min=1, help=f"Vectors per user, if several. {_OWN}")] = None,
    history: Annotated[int | None, typer.Option(min=1, help="Items per history. Default: as prepared.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help=f"Maximum number of epochs. {_OWN}")] = None,
    patience: Annotated[
        int | None, typer.Option(min=1, help=f"Stop after this many epochs without improvement. {_OWN}")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help=f"Samples per step. {_OWN}")] = None,
    learning_rate: Annotated[float | None, typer.Option(help=f"Learning rate of Adam. {_OWN}")] = None,
    negatives: Annotated[int | None, typer.Option(min=1, help=f"Sampled negative items per step. {_OWN}")] = None,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads of torch. One is fastest for small networks, and on a busy machine.")
    ] = 1,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard an unfinished training in the same folder.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON only.")] = False,
) -> None:
    """Train a model that maps histories to user vectors and items to item vectors.

    `fairsync train data/completejourney` takes seconds (svd needs no torch).
    `fairsync train data/beauty --model comirec-sa` trains one of the paper's networks.

    The epoch with the best Recall@20 on the validation requests is kept, and only that one is evaluated on the test
    requests. An interrupted training continues when the same command is given again, with the same result.
    """
    screen = Console(quiet=as_json, highlight=False)
    dataset = Dataset.load(data)
    length = history or dataset.facts.history
    given = {"dim": dim, "interests": interests, "epochs": epochs, "patience": patience, "batch": batch}
    given |= {"learning_rate": learning_rate, "negatives": negatives}  # type: ignore[dict-item]
    settings = make_settings(model, seed=seed, history=length, **{k: v for k, v in given.items() if v is not None})
    folder = out or Path("models") / f"{data.resolve().name}-{model}"
    check_model_target(folder)
    parts = _divide(dataset, split, split_seed, length)
    if len(parts.test) == 0:
        other = "users" if split is SplitName.time else "time"
        raise InvalidInputError(f"{data} has no test requests by {split.value}: choose --split {other}.")
    unfinished = folder.with_name(folder.name + ".unfinished")
    if restart:
        unfinished.unlink(missing_ok=True)
    elif unfinished.exists():
        screen.print(f"Continuing {unfinished}.", markup=False)
    few, many = (min(k, dataset.n_items) for k in (20, 50))  # a small catalog has no 50 best
    with TrainingDisplay(screen, model, settings, few) as display:
        trained = train_model(model, parts, dataset.item_ids, settings, unfinished, display.show, threads=threads)
        display.finish(trained)
    recalls = {f"Recall@{k}": recall_of(trained.model, parts.test, k) for k in (few, many)}
    notes: dict[str, Any] = {"data": data.resolve().name, "split": split.value, "split_seed": split_seed}
    notes["fingerprint"] = dataset.fingerprint()
    notes |= {"best_epoch": trained.best + 1, "test": {name.lower(): value for name, value in recalls.items()}}
    trained.model.save(folder, notes, dataset.catalog(trained.model.item_vectors()).attributes)
    unfinished.unlink(missing_ok=True)
    document = _document(model, settings, notes, trained, folder)
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    screen.print(
        f"Test: {', '.join(f'{name} {value:.4f}' for name, value in recalls.items())}"
        f" ({len(parts.test):,} requests). {document['seconds']:.1f} s of training,"
        f" {document['samples_per_second']:,.0f} samples/s."
    )
    elsewhere = "" if data.resolve() == (Path("data") / notes["data"]).resolve() else f" --data {data}"
    screen.print(
        f"Written: {folder}\nNext: fairsync evaluate {folder}{elsewhere}, or fairsync serve {folder}",
        markup=False,
        soft_wrap=True,
    )


def _divide(dataset: Dataset, split: SplitName, seed: int, history: int) -> Split:
    if split is SplitName.time:
        return split_by_time(dataset, history)
    return split_by_users(dataset, seed, history)


def _document(name: str, settings: Any, notes: dict[str, Any], trained: Trained, folder: Path) -> dict[str, Any]:
    seconds = sum(epoch.seconds for epoch in trained.epochs)
    return {
        "model": name,
        "settings": asdict(settings),
        **notes,
        "epochs": [asdict(epoch) for epoch in trained.epochs],
        "seconds": seconds,
        "samples_per_second": sum(epoch.samples for epoch in trained.epochs) / max(seconds, 1e-9),
        "folder": str(folder),
    }
