"""No times are asserted, but what takes long must show."""

import json
from time import sleep
from typing import Any

import numpy as np
import pytest

from fairsync import Catalog, FairRetriever
from fairsync.experiments.batch_size import batch_sizes
from fairsync.experiments.experiment import Lab
from fairsync.experiments.inference_time import EXPERIMENT, ratio, time_in_turns
from fairsync.policies import NoPolicy


class Slow(NoPolicy):
    """Takes its time whenever prices change."""

    def step(self, state: int, terms: Any, feedback: Any) -> int:
        sleep(0.005)
        return state


def test_a_slow_policy_shows_per_user() -> None:
    rng = np.random.default_rng(0)
    catalog, users = Catalog(rng.normal(size=(50, 4)), ["a", "b"] * 25), rng.normal(size=(40, 4))
    for size, changes in ((1, 39), (8, 4)):
        make = {
            name: lambda policy=policy, size=size: FairRetriever(
                catalog, k=3, floors=1, horizon=40, policy=policy, batch_size=size
            )
            for name, policy in (("none", NoPolicy()), ("slow", Slow()))
        }
        taken = time_in_turns(make, users, size, rounds=3)
        assert {name: len(times) for name, times in taken.items()} == {"none": 3, "slow": 3}
        assert min(taken["slow"]) >= 0.005 * changes / 40
        assert ratio(taken, "slow") > 1.5


def test_everyone_is_asked_the_same_batches() -> None:
    seen: dict[str, list[list[float]]] = {"none": [], "other": []}

    class Recorder:
        def __init__(self, name: str) -> None:
            self.name = name
            seen[name].clear()

        def retrieve(self, users: Any) -> None:
            seen[self.name].append(users[:, 0].tolist())

    make: Any = {name: lambda name=name: Recorder(name) for name in seen}
    time_in_turns(make, np.arange(10.0)[:, None], 4, rounds=2)
    assert seen["none"] == seen["other"] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_the_exhibit_has_a_row_for_each_batch_size_and_is_kept(lab: Lab) -> None:
    steps = EXPERIMENT.steps(lab)
    assert len(steps) == 2 * len(batch_sizes(lab.setting))
    for step in steps:
        step.run()
    exhibit = EXPERIMENT.show(lab)
    assert [row[:2] for row in exhibit.table.rows] == [[k, size] for k in (5, 10) for size in (1, 8, 64, 512)]
    kept = [json.loads(path.read_text()) for path in (lab.trials.store.folder / "inference-time").iterdir()]
    taken = {(one["key"]["k"], one["key"]["batch_size"]): one["value"] for one in kept}
    for k, size, base, *others in exhibit.table.rows:
        times = {name: np.array(seconds) for name, seconds in taken[k, size].items()}
        assert base == pytest.approx(1000 * np.median(times["none"]))
        for at, method in enumerate(("fairsync", "guaranteed")):
            own = [1000 * np.median(times[method]), np.median(times[method] / times["none"])]
            assert others[2 * at : 2 * at + 2] == pytest.approx(own)
    assert EXPERIMENT.show(lab) == exhibit
