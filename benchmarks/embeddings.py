"""Embeddings to measure policies on: a mean-pooling model trained on the real sets of the data folder.

    python -m benchmarks.embeddings                       # amazon-beauty and tafeng, a few minutes
    python -m benchmarks.embeddings --data DIR --seed 1

A user's vector is the mean of the embeddings of the last items of the history, relevance is the inner product.
Training minimises a sampled softmax over the next item; the epoch of best validation recall is kept. Users, not
interactions, are split: 80 % train, 10 % validate (later the "past requests"), 10 % are the requests.
Results are cached in .cache, by data, seed and settings.
"""

# torch and polars are in the extra "benchmarks". mypy must also pass without them.
# mypy: disable-error-code="import-not-found, no-untyped-call"

import argparse
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.output import progress
from rich.console import Console
from rich.progress import Progress

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "embeddings"
SETS = ("amazon-beauty", "tafeng")

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Sequences = list[list[int]]


@dataclass(frozen=True)
class Settings:
    """Settings of the training."""

    dim: int = 64
    history: int = 20
    least_items: int = 50
    negatives: int = 1000
    batch: int = 256
    learning_rate: float = 2e-3
    sharpness: float = 9.5
    most_samples: int = 400_000
    epochs: int = 12
    patience: int = 2


@dataclass(frozen=True)
class Split:
    """The items of each user in order of time, with users in three parts."""

    train: Sequences
    validation: Sequences
    test: Sequences


@dataclass(frozen=True)
class Embeddings:
    """A catalog, its requests, and past requests."""

    items: Floats
    groups: npt.NDArray[np.str_]
    users: Floats
    past: Floats
    recall: float


def data_folder(given: Path | None = None) -> Path:
    """Return the folder of the real sets: the argument, FAIRSYNC_DATA, or a folder next to the repository."""
    return given or Path(os.environ.get("FAIRSYNC_DATA") or ROOT.parent / "shared" / "data")


def split_users(sequences: dict[str, list[int]], seed: int) -> Split:
    """Split users at random into training, validation and test."""
    users = sorted(sequences)
    order = np.random.default_rng(seed).permutation(len(users))
    dealt = [sequences[users[i]] for i in order]
    first, second = int(0.8 * len(users)), int(0.9 * len(users))
    return Split(dealt[:first], dealt[first:second], dealt[second:])


def history_and_targets(sequence: list[int], length: int) -> tuple[list[int], list[int]]:
    """Return the last items of the first 80 % of a sequence, and the other 20 %."""
    cut = max(1, int(0.8 * len(sequence)))
    return sequence[:cut][-length:], sequence[cut:]


def read(folder: Path, settings: Settings, seed: int) -> tuple[Split, npt.NDArray[np.str_]]:
    """Return the users of a set, split, and the group of each item."""
    import polars as pl

    from fairsync.data.prepare import merge_infrequent

    items = pl.read_parquet(folder / "items.parquet")
    row = {item: i for i, item in enumerate(items["item"].to_list())}
    visits = pl.read_parquet(folder / "interactions.parquet").sort(["user", "timestamp"], maintain_order=True)
    sequences: dict[str, list[int]] = {}
    for user, item in zip(visits["user"].to_list(), visits["item"].to_list(), strict=True):
        if item in row:
            sequences.setdefault(str(user), []).append(row[item])
    groups = merge_infrequent(np.array([str(group) for group in items["group"].to_list()]), settings.least_items)
    return split_users(sequences, seed), groups


def read_group_sizes(file: Path) -> Rows:
    """Return the number of items of each group, given a mapping from items to groups."""
    import polars as pl

    return np.asarray(pl.read_parquet(file).group_by("group").len()["len"].to_numpy(), dtype=np.int64)


def load(name: str, data: Path, seed: int, bar: Progress, settings: Settings | None = None) -> Embeddings:
    """Return the embeddings of a set, from the cache if possible."""
    settings = settings or Settings()
    print_ = bar.console.print
    key = hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode())
    for file in ("interactions.parquet", "items.parquet"):
        key.update((data / name / file).read_bytes())
    path = CACHE / f"{name}-{seed}-{key.hexdigest()[:12]}.npz"
    if not path.exists():
        split, groups = read(data / name, settings, seed)
        trained = train(split, groups, settings, seed, name, bar)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **asdict(trained))
    with np.load(path) as kept:
        found = Embeddings(kept["items"], kept["groups"], kept["users"], kept["past"], float(kept["recall"]))
    print_(
        f"{name}: {len(found.items):,} items in {len(np.unique(found.groups))} groups, {len(found.users):,} requests,"
        f" {len(found.past):,} past ones; validation Recall@20 {found.recall:.3f}"
    )
    return found


def padded(histories: Sequence[Sequence[int]], length: int, padding: int) -> Rows:
    """Return (n, length) item rows, padded with the padding row."""
    table = np.full((len(histories), length), padding, dtype=np.int64)
    for row, history in zip(table, histories, strict=True):
        row[: len(history)] = history
    return table


def recall_at_20(users: Floats, items: Floats, targets: Sequence[Sequence[int]]) -> float:
    """Return Recall@20, mean over users with targets."""
    shares = []
    for user, wanted in zip(users, targets, strict=True):
        if wanted:
            best = np.argpartition(items @ user, -20)[-20:] if len(items) > 20 else np.arange(len(items))
            shares.append(len(set(best.tolist()) & set(wanted)) / len(set(wanted)))
    return float(np.mean(shares)) if shares else 0.0


def train(
    split: Split, groups: npt.NDArray[np.str_], settings: Settings, seed: int, name: str, bar: Progress
) -> Embeddings:
    """Train the model, and return the embeddings of its best epoch."""
    import torch

    torch.set_num_threads(1)  # the order of summation depends on the number of threads
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    n = len(groups)
    table = torch.nn.Embedding(n + 1, settings.dim, padding_idx=n)  # the last row is the padding, a zero vector
    with torch.no_grad():
        torch.nn.init.normal_(table.weight, std=0.1)
        table.weight[n] = 0
    optimiser = torch.optim.Adam(table.parameters(), lr=settings.learning_rate)

    def pooled(histories: Rows) -> Any:
        rows = torch.as_tensor(histories)
        return table(rows).sum(1) / (rows != n).sum(1, keepdim=True).clamp(min=1)

    def vectors(sequences: Sequences) -> Floats:
        histories = [history_and_targets(sequence, settings.history)[0] for sequence in sequences]
        with torch.no_grad():
            found: Floats = pooled(padded(histories, settings.history, n)).numpy()
        return found

    targets = [history_and_targets(sequence, settings.history)[1] for sequence in split.validation]
    places = [(user, place) for user, items in enumerate(split.train) for place in range(2, len(items))]
    if len(places) > settings.most_samples:
        places = [places[i] for i in rng.choice(len(places), settings.most_samples, replace=False)]
    histories = padded(
        [split.train[user][max(0, place - settings.history) : place] for user, place in places], settings.history, n
    )
    nexts = np.array([split.train[user][place] for user, place in places], dtype=np.int64)

    best, waited = None, 0
    task = bar.add_task(f"training on {name}", total=settings.epochs)
    for epoch in range(settings.epochs):
        order = rng.permutation(len(places))
        for start in range(0, len(places), settings.batch):
            chosen = order[start : start + settings.batch]
            users, wanted = pooled(histories[chosen]), torch.as_tensor(nexts[chosen])
            others = torch.as_tensor(rng.integers(n, size=settings.negatives))
            same = wanted[:, None] == others[None, :]
            scores = torch.cat(
                [(users * table(wanted)).sum(1, keepdim=True), (users @ table(others).T).masked_fill(same, -1e9)], 1
            )
            loss = torch.nn.functional.cross_entropy(
                settings.sharpness * scores, torch.zeros(len(chosen), dtype=torch.long)
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        items: Floats = table.weight[:n].detach().numpy().copy()
        past = vectors(split.validation)
        recall = recall_at_20(past, items, targets)
        bar.update(task, completed=epoch + 1, description=f"training on {name}, Recall@20 {recall:.3f}")
        if best is None or recall > best.recall:
            best, waited = Embeddings(items, groups, vectors(split.test), past, recall), 0
        else:
            waited += 1
            if waited >= settings.patience:
                break
    bar.remove_task(task)
    if best is None:
        raise SystemExit("epochs must be at least 1.")
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the real sets (default: $FAIRSYNC_DATA)")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with progress(Console()) as bar:
        for name in given.sets:
            load(name, data_folder(given.data), given.seed, bar)


if __name__ == "__main__":
    main()
