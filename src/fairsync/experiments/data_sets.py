"""Table 1: the size of the data, compared with the paper's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment
from fairsync.report.plot import scale_counts, tidy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.experiments.experiment import Lab

NAME, TITLE = "table-1", "Table 1: the data"
_COLOUR = "#0072B2"

# As printed there: users, items, groups, interactions.
_PAPER = {
    "Amazon-Book (paper)": (459_133, 313_966, 165, 8_898_041),
    "Taobao (paper)": (976_779, 1_708_530, 1_246, 85_384_110),
}


def show(lab: Lab) -> Exhibit:
    """Return the sizes of this data set and of the paper's two, and a plot of its groups."""
    facts = lab.dataset.facts
    requests = len(lab.trials.bases.split.test)
    _, sizes = np.unique(lab.dataset.item_groups, return_counts=True)
    columns = ["data set", "users", "items", "groups", "interactions", "items of the largest group, %"]
    columns += ["test requests", "floor", *(f"floors take, % of slots, K = {k}" for k in lab.setting.ks)]
    shares = [100.0 * lab.setting.floor * facts.groups / (requests * k) for k in lab.setting.ks]
    own: list[str | int | float | None] = [facts.name, facts.users, facts.items, facts.groups, facts.interactions]
    own += [100.0 * float(sizes.max()) / facts.items, requests, lab.setting.floor, *shares]
    rows = [own]
    rows += [[name, *numbers, *[None] * (len(columns) - 5)] for name, numbers in _PAPER.items()]
    words = (
        f"What was tried on: {facts.name}, as prepared, beside the two sets of the paper as it prints them. Users and"
        f" items have at least {facts.least_interactions} interactions each, and groups of fewer than"
        f" {facts.least_items} items are one. A tenth of the users make the test requests. The floor is promised to"
        " every group over all test requests; unless it was chosen, it claims the share of all slots at K = 20 that"
        " the paper's 200 exposures claim there, for its number of groups and a tenth of its users. The figure shows"
        " how unlike in size the groups are."
    )
    return Exhibit(NAME, TITLE, words, ExhibitTable(columns, rows), _draw(sizes))


def _draw(sizes: NDArray[np.int64]) -> Figure:
    figure = Figure(figsize=(7.0, 3.0), layout="constrained")
    axes = figure.subplots()
    axes.bar(np.arange(1, len(sizes) + 1), np.sort(sizes)[::-1], width=0.9, color=_COLOUR)
    scale_counts(axes, sizes)
    axes.set_xlabel("groups, largest first")
    axes.set_ylabel("items")
    tidy(axes)
    return figure


EXPERIMENT = Experiment(NAME, TITLE, show)
