"""Accuracy and training speed of our networks, compared with those of torch-rechub.

    python -m benchmarks.models                                # all five, about 20 minutes
    python -m benchmarks.models --models youtube-dnn mind      # some of them
    python -m benchmarks.models --quick                        # a moment of each: a smoke test

Both get the same samples of Amazon Beauty in the same order, the same sizes, the same number of epochs, and take
turns of some thousand samples, so that other load on the machine affects them equally. Ours is Trainer.step, the
drawing of negatives included; theirs is its own trainer reading from memory, with negatives drawn before the timing.
Each side's epoch is selected by validation recall and reported on the test requests. A peer that has used up its time
(--minutes) stops, and ours stops with it: recall is then compared after the same samples.
"""

# torch and torch-rechub are in the extra "benchmarks". mypy must also pass without them.
# mypy: disable-error-code="import-not-found, no-untyped-call"

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from benchmarks.embeddings import data_folder
from benchmarks.output import Claim, Table, finish, make_parser, make_screen, progress
from benchmarks.rechub import NEGATIVES, Floats, Peer
from rich.console import Console
from rich.progress import Progress

from fairsync.data import Dataset, Requests, Split, prepare, read_table, split_by_users
from fairsync.metrics import accuracy_of_each
from fairsync.models import MODELS, NetworkSettings, make_settings

NETWORKS = [name for name, settings in MODELS.items() if isinstance(settings, NetworkSettings)]
TURN = 10_000  # samples per turn
K = 20


@dataclass(frozen=True)
class Measurement:
    """One line of the table; speeds are samples per second, medians over turns."""

    model: str
    batch: int
    epochs: float
    recall: float
    peer_recall: float
    errors: float
    speed: float
    peer_speed: float
    times_faster: float


def recall_of_each(users: Floats, items: Floats, requests: Requests) -> npt.NDArray[np.float64]:
    """Return the recall of each request by an exhaustive search."""
    best = np.empty((len(users), K), dtype=np.int64)
    for start in range(0, len(users), 256):
        block = users[start : start + 256]
        scores = (block.reshape(-1, block.shape[-1]) @ items.T).reshape(len(block), -1, len(items)).max(axis=1)
        found = np.argpartition(scores, -K, axis=1)[:, -K:]
        order = np.argsort(-np.take_along_axis(scores, found, axis=1), axis=1)
        best[start : start + 256] = np.take_along_axis(found, order, axis=1)
    return accuracy_of_each(best, requests.targets).recall


class Best:
    """Keeps the test recalls at the best validation recall."""

    def __init__(self) -> None:
        self.validation, self.test = -1.0, np.zeros(0)

    def judge(self, users: tuple[Floats, Floats], items: Floats, split: Split) -> None:
        """Evaluate the vectors on validation and test requests, and keep the recalls if they are better."""
        now = float(recall_of_each(users[0], items, split.validation).mean())
        if now > self.validation:
            self.validation, self.test = now, recall_of_each(users[1], items, split.test)


def measure(
    name: str, dataset: Dataset, split: Split, epochs: int, seconds: float, most: int, seed: int, bar: Progress
) -> Measurement:
    """Train both models in turns."""
    from fairsync.models.network import Network
    from fairsync.models.training import Trainer

    settings = make_settings(name, seed=seed, history=dataset.facts.history, most_samples=most)
    assert isinstance(settings, NetworkSettings)
    trainer = Trainer(Network(name, settings, dataset.item_ids), split)
    trainer.model.encoder.train()
    peer, rng = Peer(name, settings, dataset.n_items), np.random.default_rng(seed)
    histories = split.validation.histories, split.test.histories
    ours, theirs, spent, done = Best(), Best(), 0.0, 0
    speeds: list[tuple[float, float]] = []
    size = min(len(trainer.samples), most)
    task = bar.add_task(name, total=epochs * size)
    while done < epochs * size and spent < seconds:
        batches = list(trainer.samples.batches(settings.batch, most, rng))
        for start in range(0, len(batches), max(TURN // settings.batch, 1)):
            turn = batches[start : start + max(TURN // settings.batch, 1)]
            chosen = np.concatenate(turn)
            loader = peer.loader(*trainer.samples.take(chosen), rng)
            began = time.perf_counter()
            for batch in turn:
                trainer.step(*trainer.samples.take(batch), trainer.negatives.draw(rng))
            between = time.perf_counter()
            peer.train(loader)
            ended = time.perf_counter()
            speeds.append((len(chosen) / (between - began), len(chosen) / (ended - between)))
            spent, done = spent + ended - between, done + len(chosen)
            words = f"{name}: {speeds[-1][0]:,.0f} and {speeds[-1][1]:,.0f} samples/s"
            bar.update(task, completed=done, description=words)
            if spent >= seconds:
                break
        users = [trainer.model.user_vectors(one) for one in histories]
        trainer.model.encoder.train()
        ours.judge((users[0], users[1]), trainer.model.item_vectors(), split)
        (validation, items), (test, _) = (peer.vectors(one) for one in histories)
        theirs.judge((validation, test), items, split)
    bar.remove_task(task)
    difference = ours.test - theirs.test
    middle = np.median(np.array(speeds), axis=0)
    return Measurement(
        name,
        settings.batch,
        done / size,
        float(ours.test.mean()),
        float(theirs.test.mean()),
        float(difference.mean() / (difference.std() / np.sqrt(len(difference)) + 1e-12)),
        float(middle[0]),
        float(middle[1]),
        float(np.median([one / other for one, other in speeds])),
    )


def check_claims(figures: Sequence[Measurement]) -> list[Claim]:
    speed = [Claim(f"{one.model}: samples/s ÷ torch-rechub's", one.times_faster, 2.0, at_most=False) for one in figures]
    recall = [
        Claim(f"{one.model}: recall above torch-rechub's, in standard errors", one.errors, -2.0, at_most=False)
        for one in figures
        if one.epochs >= 1  # recall is compared only after a full epoch
    ]
    return speed + recall


def table(figures: Sequence[Measurement], threads: int) -> Table:
    return Table.of(
        f"Amazon Beauty, d = 64, threads: {threads}; torch-rechub with {NEGATIVES} negatives a sample",
        figures,
        {
            "model": lambda one: one.model,
            "batch": lambda one: str(one.batch),
            "epochs": lambda one: f"{one.epochs:.1f}",
            "Recall@20": lambda one: f"{one.recall:.4f}",
            "Recall@20, theirs": lambda one: f"{one.peer_recall:.4f}",
            "difference ÷ its error": lambda one: f"{one.errors:+.1f}",
            "samples/s": lambda one: f"{one.speed:,.0f}",
            "samples/s, theirs": lambda one: f"{one.peer_speed:,.0f}",
            "times faster": lambda one: f"{one.times_faster:.1f}",
        },
    )


def read(folder: Path) -> Dataset:
    """Return Amazon Beauty, prepared as the paper does."""
    beauty = folder / "amazon-beauty"
    return prepare(read_table(beauty / "interactions.parquet", beauty / "items.parquet"), "amazon-beauty")


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = make_parser(__doc__, quick="2,000 samples of each, no claims")
    parser.add_argument("--data", type=Path, help="folder of the real sets (default: $FAIRSYNC_DATA)")
    parser.add_argument("--models", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=10.0, help="maximum training time of the peer per model")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch, for both")
    parser.add_argument("--seed", type=int, default=0)
    given, screen = parser.parse_args(argv), screen or make_screen()

    import torch

    torch.set_num_threads(given.threads)
    dataset = read(data_folder(given.data))
    split = split_by_users(dataset)
    epochs, most = (1, 2_000) if given.quick else (given.epochs, NetworkSettings().most_samples)
    with progress(screen) as bar:
        terms = (dataset, split, epochs, 60 * given.minutes, most, given.seed, bar)
        figures = [measure(name, *terms) for name in given.models]
    claims = [] if given.quick else check_claims(figures)
    document = {"threads": given.threads, "seed": given.seed, "figures": [asdict(figure) for figure in figures]}
    return finish("models", [table(figures, given.threads)], claims, document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
