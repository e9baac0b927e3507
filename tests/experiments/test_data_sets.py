"""Table 1 against a recount."""

import numpy as np
import pytest

from fairsync.experiments.data_sets import EXPERIMENT
from fairsync.experiments.experiment import Lab


def test_against_a_recount(lab: Lab) -> None:
    assert EXPERIMENT.trials(lab) == ()
    exhibit = EXPERIMENT.show(lab)
    columns, [own, amazon, taobao] = list(exhibit.table.columns), exhibit.table.rows
    found = dict(zip(columns, own, strict=True))
    data = lab.dataset
    assert found["data set"] == "tastes"
    assert (found["users"], found["items"]) == (len(data.user_ids), len(data.item_ids))
    assert found["interactions"] == sum(len(one) for one in data.sequences)
    groups = data.item_groups.tolist()
    assert found["groups"] == len(set(groups))
    assert found["items of the largest group, %"] == pytest.approx(
        100 * max(groups.count(one) for one in set(groups)) / len(groups)
    )
    assert found["test requests"] == len(data.user_ids) // 10
    assert found["floors take, % of slots, K = 5"] == pytest.approx(100 * 8 * 14 / (30 * 5))
    assert list(amazon[1:5]) == [459_133, 313_966, 165, 8_898_041]
    assert list(taobao[1:5]) == [976_779, 1_708_530, 1_246, 85_384_110]


def test_the_figure_shows_every_group(lab: Lab) -> None:
    figure = EXPERIMENT.show(lab).figure
    assert figure is not None
    heights = [bar.get_height() for bar in figure.axes[0].patches]  # type: ignore[attr-defined]
    assert heights == sorted(np.unique(lab.dataset.item_groups, return_counts=True)[1].tolist(), reverse=True)
