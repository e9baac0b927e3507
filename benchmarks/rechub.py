"""The models of torch-rechub, trained by its own trainer on given samples."""

# torch and torch-rechub are in the extra "benchmarks". mypy must also pass without them.
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-untyped-call, no-any-return"

import contextlib
import io
from typing import Any

import numpy as np
import numpy.typing as npt

from fairsync.models import NetworkSettings

Rows = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float32]

NEGATIVES = 20  # per sample, drawn uniformly
WEIGHT_DECAY = 1e-6  # as in its examples
_BLOCK = 2048


class Peer:
    """A model of torch-rechub with the same sizes as ours.

    Three things are fixed in its favour: scores are multiplied by the same sharpness as ours (its MIND and
    ComiRec take a temperature and do not use it); the score of its GRU4Rec is summed over dimensions (it sums over
    items, which no loss can use); the matrices of its ComiRec-DR are drawn (they are left as memory happens to be).
    Its models want a feature of the user: they get one that is the same for all.
    """

    def __init__(self, name: str, settings: NetworkSettings, n_items: int) -> None:
        import torch
        from torch_rechub.basic.features import SequenceFeature, SparseFeature
        from torch_rechub.basic.initializers import RandomNormal
        from torch_rechub.models.matching import MIND, ComirecDR, ComirecSA, GRU4Rec, YoutubeDNN
        from torch_rechub.trainers import MatchTrainer

        torch.manual_seed(settings.seed)
        self.name, self.settings, self.n_items = name, settings, n_items
        dim, length = settings.dim, settings.history
        drawn = RandomNormal(0, 0.1)
        item = SparseFeature("item", n_items + 1, dim, padding_idx=0, initializer=drawn)
        user = SparseFeature("user", 1, dim, initializer=drawn)

        def items(name: str, pooling: str) -> Any:
            return SequenceFeature(name, n_items + 1, dim, pooling=pooling, shared_with="item", padding_idx=0)

        negatives, past = items("negatives", "concat"), items("past", "concat")
        towers = ([user], [past], [item], [negatives])
        if name == "youtube-dnn":
            model = YoutubeDNN([items("past", "mean")], [item], [negatives], {"dims": [dim]})
        elif name == "gru4rec":
            model = GRU4Rec(*towers, {"dims": [dim]})  # it has two layers and accepts no other number
        elif name == "mind":
            model = MIND(*towers, max_length=length, interest_num=settings.interests)
        elif name == "comirec-sa":
            model = ComirecSA(*towers, interest_num=settings.interests)
        else:
            model = ComirecDR(*towers, max_length=length, interest_num=settings.interests)
            torch.nn.init.xavier_uniform_(model.capsule.w)
        self.model = model
        self.trainer = MatchTrainer(
            _sharp(model, settings.sharpness, by_towers=name == "gru4rec"),
            mode=2,
            optimizer_params={"lr": settings.learning_rate, "weight_decay": WEIGHT_DECAY},
        )

    def loader(self, histories: Rows, targets: Rows, rng: np.random.Generator) -> Any:
        """Return the input of its trainer, which is prepared before the timing."""
        from torch.utils.data import DataLoader
        from torch_rechub.utils.data import TorchDataset

        samples = {
            **self.user_features(histories),
            "item": targets.astype(np.int64) + 1,
            "negatives": rng.integers(1, self.n_items + 1, (len(targets), NEGATIVES)),
        }
        if len(targets) % self.settings.batch == 1:  # its layers refuse a batch of one
            samples = {key: value[:-1] for key, value in samples.items()}
        labels = np.zeros(len(samples["item"]), dtype=np.int64)
        return DataLoader(TorchDataset(samples, labels), batch_size=self.settings.batch, shuffle=False)

    def train(self, loader: Any) -> None:
        """Train on the samples by its own trainer."""
        with contextlib.redirect_stderr(io.StringIO()):  # its bar
            self.trainer.train_one_epoch(loader)

    def vectors(self, histories: Rows) -> tuple[Floats, Floats]:
        """Return (n, interests, dim) users and (n_items, dim) items."""
        import torch

        self.model.eval()
        users, items = [], []
        with torch.no_grad():
            self.model.mode = "user"
            for start in range(0, len(histories), _BLOCK):
                part = self.user_features(histories[start : start + _BLOCK])
                found = self.model({key: torch.as_tensor(value) for key, value in part.items()})
                users.append(found.reshape(len(found), -1, self.settings.dim).numpy())
            self.model.mode = "item"
            for start in range(1, self.n_items + 1, _BLOCK):
                rows = torch.arange(start, min(start + _BLOCK, self.n_items + 1))
                items.append(self.model({"item": rows}).reshape(len(rows), -1).numpy())
            self.model.mode = None
        return np.concatenate(users), np.concatenate(items)

    def user_features(self, histories: Rows) -> dict[str, npt.NDArray[np.int64]]:
        """Return its features: items are counted from 1, and padded with 0 at the front, as is its default."""
        past = np.zeros((len(histories), self.settings.history), dtype=np.int64)
        counts = (histories >= 0).sum(axis=1)
        rows, places = np.nonzero(histories >= 0)
        past[rows, self.settings.history - counts[rows] + places] = histories[rows, places] + 1
        return {"past": past, "user": np.zeros(len(histories), dtype=np.int64)}


def _sharp(model: Any, sharpness: float, *, by_towers: bool) -> Any:
    """Return the model with its scores multiplied by a factor."""
    import torch

    class Sharp(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: dict[str, Any]) -> Any:
            if by_towers:
                return sharpness * (self.model.user_tower(x) * self.model.item_tower(x)).sum(dim=-1)
            return sharpness * self.model(x)

    return Sharp()
