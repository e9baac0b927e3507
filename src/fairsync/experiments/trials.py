"""Trial: one method on one base model under given terms. Most tables and figures consist of trials."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.experiments.cached_index import CachedIndex
from fairsync.experiments.compared_methods import GRIDS, QUICK_GRIDS, Scale, make_method
from fairsync.hindsight import hindsight
from fairsync.metrics.accuracy import accuracy_of_each
from fairsync.promises.floors import capacities_of
from fairsync.retriever import FairRetriever

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog.groups import Label
    from fairsync.experiments.base_models import BaseModel, BaseModels, RequestVectors
    from fairsync.experiments.reproduction_setting import Setting
    from fairsync.experiments.store import Store

Order = Literal["dealt", "sorted", "time"]
Part = Literal["validation", "test"]
_MARGIN = 1.1  # chosen on Amazon Beauty, where tuned methods missed floors by a few exposures without it


@dataclass(frozen=True)
class Trial:
    """The terms of a trial.

    Attributes
    ----------
    model, seed
        Name and random seed of the base model.
    method
        One of :data:`fairsync.experiments.compared_methods.METHODS`.
    k
        Candidates per request.
    floor
        Exposures promised to every group over all test requests.
    spread
        Whether the floor of each group is drawn from 1 to ``floor`` instead.
    batch_size
        Requests between two price changes.
    coefficient
        Coefficient of the method in multiples of the scale. If None, it is tuned on the validation requests.
    order
        Order of arrival: ``"dealt"`` (at random), ``"sorted"`` by the group that each user likes best, or ``"time"``.
    """

    model: str
    seed: int
    method: str
    k: int
    floor: int
    spread: bool = False
    batch_size: int = 16
    coefficient: float | None = None
    order: Order = "dealt"


@dataclass(frozen=True)
class TrialMeasures:
    """The outcome of a trial.

    Attributes
    ----------
    recall, ndcg, ndcg_of_hits, hit_rate : float
        Accuracy. ``ndcg_of_hits`` is the paper's NDCG, as its program computes it.
    esp : float
        Fraction of groups that reached their floor.
    exposures : list of int
        Exposures of each group, in the order of the catalog's labels.
    missing : int
        Sum of the exposures that groups below their floor miss.
    relevance : float
        Sum of the relevance of all candidates.
    cost : float
        Relevance given up against no floors.
    least_cost : float
        Cost of the best plan in hindsight, a lower bound for all plans that meet the floors.
    coefficient : float or None
        The coefficient that was used, in multiples of the scale.
    each : dict
        Recall, both kinds of NDCG, and hits of each request that has targets, for paired tests.
    """

    recall: float
    ndcg: float
    ndcg_of_hits: float
    hit_rate: float
    esp: float
    exposures: list[int]
    missing: int
    relevance: float
    cost: float
    least_cost: float
    coefficient: float | None
    each: dict[str, list[float]]

    @property
    def cost_ratio(self) -> float | None:
        """Cost divided by the least possible cost, or None if that is 0 up to rounding.

        The ratio is too low if floors were missed.
        """
        return self.cost / self.least_cost if self.least_cost > 1e-9 * abs(self.relevance) else None


@dataclass(frozen=True)
class HindsightPlan:
    """The best plan in hindsight for the floors of a trial.

    Attributes
    ----------
    cost : float
        Cost of the plan.
    recall : float
        Recall of its candidates.
    """

    cost: float
    recall: float


class Trials:
    """Runs trials, tunes coefficients, and stores the outcomes.

    Attributes
    ----------
    asked : dict
        The trials whose outcome was requested, as keys in that order.
    """

    def __init__(self, setting: Setting, bases: BaseModels, store: Store) -> None:
        self.asked: dict[Trial, None] = {}
        self.setting, self.bases, self.store = setting, bases, store
        self._index: tuple[BaseModel, CachedIndex] | None = None
        self._plain: dict[tuple[str, int, Part], tuple[NDArray[np.int64], NDArray[np.float64]]] = {}

    def outcome(self, trial: Trial) -> TrialMeasures:
        """Return the outcome of a trial. The trial is run if its outcome is not stored."""
        self.asked[trial] = None
        if trial.k > max(self.setting.ks):
            raise InvalidInputError(
                f"K = {trial.k} is above those of the setting ({max(self.setting.ks)}): add it there."
            )
        return TrialMeasures(**self.store.cell("trial", self._key(trial), lambda: asdict(self.compute(trial))))

    def base(self, trial: Trial) -> BaseModel:
        """Return the base model of a trial."""
        return self.bases.get(trial.model, trial.seed)

    def floors(self, trial: Trial) -> dict[Label, int]:
        """Return {label: floor} over the test requests."""
        labels = self.base(trial).catalog.labels
        if not trial.spread:
            return dict.fromkeys(labels, trial.floor)
        drawn = np.random.default_rng(trial.seed).integers(1, trial.floor + 1, size=len(labels))
        return dict(zip(labels, drawn.tolist(), strict=True))

    def tuned(self, trial: Trial) -> float | None:
        """Return the best coefficient on the validation requests: most floors kept, then most relevance.

        Methods without a grid are not tuned. Ties are broken by relevance instead of recall, because recall depends on
        few hits and could select a strong coefficient by chance if floors are not binding.
        """
        grid = (QUICK_GRIDS if self.setting.quick else GRIDS).get(trial.method)
        if grid is None:
            return None
        key = {**self._key(trial), "order": "dealt", "grid": list(grid)}

        def search() -> dict[str, Any]:
            base, floors = self.base(trial), self.rehearsed_floors(trial)
            tried = []
            for coefficient in grid:
                rows, relevance = self._retrieve(base, "validation", trial, floors, coefficient)
                exposures = np.bincount(base.catalog.group_of[rows].ravel(), minlength=base.catalog.n_groups)
                kept = float(np.mean(exposures >= list(floors.values())))
                tried.append({"coefficient": coefficient, "esp": kept, "relevance": float(relevance.sum())})
            best = max(tried, key=lambda one: (one["esp"], one["relevance"]))
            return {"best": best["coefficient"], "tried": tried}

        return float(self.store.cell("tuning", key, search)["best"])

    def rehearsed_floors(self, trial: Trial) -> dict[Label, int]:
        """Return {label: floor} over the validation requests: scaled to their number, and a tenth higher.

        Without a margin, coefficients that keep all floors in one sample of requests may miss some in another. The
        margin is smaller if it would be infeasible.
        """
        base, n = self.base(trial), len(self.base(trial).validation.users)
        due = np.array(list(self.floors(trial).values())) * (n / len(base.test.users))
        due = np.maximum(due, 1)
        room = min(n * trial.k / due.sum(), (n * capacities_of(base.catalog.group_sizes, trial.k) / due).min())
        due = (due * min(_MARGIN, max(1.0, room))).astype(int)
        return dict(zip(base.catalog.labels, due.tolist(), strict=True))

    def order(self, trial: Trial) -> NDArray[np.intp]:
        """Return the order of arrival of the test requests."""
        base = self.base(trial)
        if trial.order == "dealt":
            return np.arange(len(base.test.users))
        if trial.order == "time":
            return np.argsort(base.test.times, kind="stable")
        rows, _ = self._without_floors(base, "test")
        return np.argsort(base.catalog.group_of[rows[:, 0]], kind="stable")

    def _key(self, trial: Trial) -> dict[str, Any]:
        return {"data": self.setting.fingerprint, "quick": self.setting.quick, **asdict(trial)}

    def compute(self, trial: Trial) -> TrialMeasures:
        """Run a trial and return its outcome, without the store."""
        base, floors = self.base(trial), self.floors(trial)
        coefficient = self.tuned(trial) if trial.coefficient is None else trial.coefficient
        order = self.order(trial)
        if trial.method == "none":
            rows, relevance = (whole[:, : trial.k] for whole in self._without_floors(base, "test"))
        else:
            found, gained = self._retrieve(base, "test", trial, floors, coefficient, order)
            rows, relevance = np.empty_like(found), np.empty_like(gained)
            rows[order], relevance[order] = found, gained  # in the original order of requests
        each = accuracy_of_each(rows, base.test.targets)
        promised = np.array(list(floors.values()))
        exposures = np.bincount(base.catalog.group_of[rows].ravel(), minlength=len(promised))
        plain = float(self._without_floors(base, "test")[1][:, : trial.k].sum())
        total = float(relevance.sum())
        means = each.means()
        return TrialMeasures(
            **means,
            esp=float(np.mean(exposures >= promised)),
            exposures=exposures.tolist(),
            missing=int(np.maximum(promised - exposures, 0).sum()),
            relevance=total,
            cost=plain - total,
            least_cost=self.plan(trial).cost,
            coefficient=coefficient,
            each={name: getattr(each, name).tolist() for name in means},
        )

    def plan(self, trial: Trial) -> HindsightPlan:
        """Return the best plan in hindsight, which is the same for all methods, batch sizes and orders."""
        names = ("model", "seed", "k", "floor", "spread")
        key = {name: self._key(trial)[name] for name in ("data", "quick", *names)}

        def solve() -> dict[str, float]:
            base = self.base(trial)
            best = hindsight(
                base.catalog, base.test.users, k=trial.k, floors=self.floors(trial), index=self._index_of(base)
            )
            return asdict(HindsightPlan(best.cost, float(accuracy_of_each(best.rows, base.test.targets).recall.mean())))

        return HindsightPlan(**self.store.cell("plan", key, solve))

    def _retrieve(
        self,
        base: BaseModel,
        part: Part,
        trial: Trial,
        floors: dict[Label, int],
        coefficient: float | None,
        order: NDArray[np.intp] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return candidates as catalog rows, and their relevance, in order of arrival."""
        asked: RequestVectors = getattr(base, part)
        users = asked.users if order is None else asked.users[order]
        policy = make_method(trial.method, coefficient, self.scale(trial))
        retriever = FairRetriever(
            base.catalog,
            k=trial.k,
            floors=floors,
            horizon=len(users),
            policy=policy,
            batch_size=trial.batch_size,
            index=self._index_of(base),
        )
        found = retriever.retrieve(users)
        return found.rows, found.relevance

    def scale(self, trial: Trial) -> Scale:
        """Return the units of coefficients, estimated on the validation requests."""
        base = self.base(trial)
        relevance = float(self._without_floors(base, "validation")[1][:, : trial.k].mean())
        return Scale(relevance, len(base.test.users) * trial.k / base.catalog.n_groups)

    def _without_floors(self, base: BaseModel, part: Part) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return candidates and relevance without floors for the largest k. Shorter lists are prefixes of these."""
        place = (base.model, base.seed, part)
        if place not in self._plain:
            asked: RequestVectors = getattr(base, part)
            retriever = FairRetriever(
                base.catalog,
                k=max(self.setting.ks),
                floors=0,
                horizon=len(asked.users),
                policy="none",
                index=self._index_of(base),
            )
            found = retriever.retrieve(asked.users)
            self._plain = {key: kept for key, kept in self._plain.items() if key[:2] == place[:2]}
            self._plain[place] = found.rows, found.relevance
        return self._plain[place]

    def _index_of(self, base: BaseModel) -> CachedIndex:
        if self._index is None or self._index[0] is not base:
            # Tuning uses the validation requests most often.
            asked = np.concatenate([base.validation.users, base.test.users])
            self._index = None  # frees the memory of the old index before the new one is built
            self._index = base, CachedIndex(base.catalog, asked)
        return self._index[1]
