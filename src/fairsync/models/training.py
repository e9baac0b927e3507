"""Training of networks by a sampled softmax over the next item."""

# mypy: disable-error-code="misc, no-untyped-call, no-any-return"

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fairsync.errors import InvalidInputError
from fairsync.models.base import recall_of
from fairsync.models.checkpoint import Checkpoint, fingerprint
from fairsync.models.network import Network
from fairsync.models.progress import Epoch, Trained, TrainingProgress
from fairsync.models.row_adam import Distinct, RowAdam
from fairsync.models.samples import Negatives, Samples
from fairsync.models.softmax import sampled_softmax
from fairsync.ragged import PADDING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from fairsync.data.splits import Split
    from fairsync.models.settings import NetworkSettings


class Trainer:
    """A network and the state of its training.

    Each epoch has a random generator of its own, seeded by the seed and the epoch's number, so that a resumed training
    draws the same samples as one without an interruption.
    """

    def __init__(self, model: Network, split: Split) -> None:
        settings = model.settings
        self.model, self.settings = model, settings
        self.samples = Samples(split.train, settings.history)
        self.negatives = Negatives(split.train, len(model.item_ids), settings.negatives)
        self.distinct = Distinct(len(model.item_ids))
        self.log_expected = torch.as_tensor(self.negatives.log_expected, device=model.device)
        self.row_adam = RowAdam(model.table, settings.learning_rate)
        self.adam = torch.optim.Adam(model.encoder.parameters(), lr=settings.learning_rate, fused=True)

    def epoch(self, number: int, watch: Callable[[int, int, float], None]) -> tuple[float, int]:
        """Train for one epoch. Return the mean loss and the number of samples."""
        rng = np.random.default_rng([self.settings.seed, number])
        total = min(len(self.samples), self.settings.most_samples)
        done, loss = 0, 0.0
        self.model.encoder.train()
        for chosen in self.samples.batches(self.settings.batch, self.settings.most_samples, rng):
            histories, targets = self.samples.take(chosen)
            loss += self.step(histories, targets, self.negatives.draw(rng)) * len(chosen)
            done += len(chosen)
            watch(done, total, loss / done)
        return loss / done, done

    def step(self, histories: NDArray[np.int32], targets: NDArray[np.int32], negatives: NDArray[np.int64]) -> float:
        """Train on a batch and return its loss."""
        real = histories != PADDING
        rows, places = self.distinct.find(np.concatenate([histories[real], targets, negatives]))
        local = np.full(histories.shape, PADDING, dtype=np.int64)
        seen = int(real.sum())
        local[real] = places[:seen]
        device = self.model.device
        used = torch.as_tensor(rows, device=device)
        vectors = self.model.table.index_select(0, used).requires_grad_()
        users = self.model.encode(vectors, torch.as_tensor(local, device=device))
        loss = sampled_softmax(
            users,
            torch.nn.functional.normalize(vectors, dim=-1),
            torch.as_tensor(places[seen : seen + len(targets)], device=device),
            torch.as_tensor(places[seen + len(targets) :], device=device),
            self.log_expected.index_select(0, used),
            self.settings.sharpness,
        )
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        self.row_adam.step(used, vectors)
        return float(loss.detach())

    def state(self) -> dict[str, Any]:
        """Return the state that the next epoch depends on."""
        return {
            "table": self.model.table,
            "encoder": self.model.encoder.state_dict(),
            "row_adam": {"moments": self.row_adam.moments, "steps": self.row_adam.steps},
            "adam": self.adam.state_dict(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state` returned."""
        self.model.table.copy_(state["table"])
        self.model.encoder.load_state_dict(state["encoder"])
        self.row_adam.moments.copy_(state["row_adam"]["moments"])
        self.row_adam.steps = state["row_adam"]["steps"]
        self.adam.load_state_dict(state["adam"])


def train_network(
    name: str,
    split: Split,
    item_ids: NDArray[np.str_],
    settings: NetworkSettings,
    checkpoint: Path | None = None,
    watch: Callable[[TrainingProgress], None] | None = None,
    threads: int = 1,
) -> Trained:
    """Train a network and keep the epoch with the best validation recall.

    The parameters are those of :func:`fairsync.models.train_model`, which validates them.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _train(name, split, item_ids, settings, checkpoint, watch)
    finally:
        torch.set_num_threads(before)


def _train(
    name: str,
    split: Split,
    item_ids: NDArray[np.str_],
    settings: NetworkSettings,
    checkpoint: Path | None,
    watch: Callable[[TrainingProgress], None] | None,
) -> Trained:
    trainer = Trainer(Network(name, settings, item_ids), split)
    model, epochs, best = trainer.model, [], trainer.model.weights()
    mark = fingerprint(name, settings, split, item_ids)
    if checkpoint is not None and (found := Checkpoint.read(checkpoint, mark)) is not None:
        trainer.set_state(found.state)
        epochs, best = [Epoch(**one) for one in found.epochs], found.best
    while len(epochs) < settings.epochs and _epochs_since_best(epochs) < settings.patience:
        finished = tuple(epochs)
        started = time.perf_counter()
        loss, samples = trainer.epoch(len(epochs), _progress_callback(watch, finished))
        seconds = time.perf_counter() - started
        if not np.isfinite(loss):
            raise InvalidInputError(f"training diverged (loss {loss}): choose a smaller learning_rate.")
        epochs.append(Epoch(loss, recall_of(model, split.validation), seconds, samples))
        if _epochs_since_best(epochs) == 0:
            best = model.weights()
        if checkpoint is not None:
            Checkpoint(mark, trainer.state(), [vars(one) for one in epochs], best).write(checkpoint)
    model.set_weights(best)
    return Trained(model, tuple(epochs), len(epochs) - 1 - _epochs_since_best(epochs))


def _epochs_since_best(epochs: list[Epoch]) -> int:
    """Return the number of epochs since the best one."""
    values = [epoch.recall for epoch in epochs]
    return len(values) - 1 - values.index(max(values)) if values else 0


def _progress_callback(
    watch: Callable[[TrainingProgress], None] | None, finished: tuple[Epoch, ...]
) -> Callable[[int, int, float], None]:
    """Return a callback that reports each step of the current epoch to ``watch``."""

    def report(done: int, total: int, loss: float) -> None:
        if watch is not None:
            watch(TrainingProgress(done, total, loss, finished))

    return report
