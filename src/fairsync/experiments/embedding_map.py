"""The paper's map of embeddings: prices move users towards groups that need exposure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fairsync.errors import MissingPackageError
from fairsync.experiments.compared_methods import make_method
from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment, Lab, WorkStep
from fairsync.report.plot import mark_floors, scale_counts, tidy
from fairsync.retriever import FairRetriever

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.experiments.trials import Trial

_GROUPS = 5
_MOMENTS = (0.01, 0.1, 1.0)  # fractions of all requests
_ITEMS_OF_A_GROUP, _USERS_ON_THE_MAP, _USERS_ASKED = 40, 40, 200
_ROUNDS, _QUICK_ROUNDS = 1000, 300  # iterations of t-SNE
_COLOURS = ("#D55E00", "#E69F00", "#009E73", "#56B4E9", "#0072B2")
_LONGEST = 24  # letters of the name of a group

_WORDS = (
    "Items of {groups} groups and some users of {model}, drawn by t-SNE: in the space of the model, and in the dual"
    " space of the paper, where an item carries its group as further coordinates, and a user the prices of all"
    " groups, negated, after a number of requests under FairSync (K = {k}, floors of {floor}). Unlike in"
    " the paper, these coordinates are scaled so that those of items and of users are of one size (no ranking"
    " changes), the users are the same in all maps, so that only prices move them, and one group is"
    " drawn from each fifth of all groups, from the least to the most exposed without floors. What a map can only"
    " hint at is a number in the table: the rank of a group's best item among all items, on average over {users}"
    " users, in both spaces. Bars are exposures so far; black lines are the floor's share for these requests."
)


def mean_ranks(
    catalog: Catalog, users: NDArray[np.floating[Any]], prices: NDArray[np.float64], codes: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return the rank of each group's best item among all items under prices, mean over users.

    Parameters
    ----------
    catalog
        The items.
    users
        (n, d) or (n, interests, d) User vectors.
    prices
        (G,) Prices. With zeros, ranks are those of the model's own space.
    codes
        Codes of the groups.

    Examples
    --------
    >>> from fairsync import Catalog
    >>> catalog = Catalog(np.array([[3.0], [2.0], [1.0]]), ["a", "a", "b"])
    >>> mean_ranks(catalog, np.ones((2, 1)), np.zeros(2), np.arange(2)).tolist()
    [1.0, 3.0]
    >>> mean_ranks(catalog, np.ones((2, 1)), np.array([0.0, -1.5]), np.arange(2)).tolist()
    [1.0, 2.0]
    """
    ranks = np.zeros(len(codes))
    for user in users:
        scores = (catalog.embeddings @ np.atleast_2d(user).T).max(axis=1) - prices[catalog.group_of]
        best = [scores[catalog.group_of == code].max() for code in codes]
        ranks += 1 + len(scores) - np.searchsorted(np.sort(scores), best, side="right")
    return ranks / len(users)


def dual_space(
    catalog: Catalog, rows: NDArray[np.intp], users: NDArray[np.floating[Any]], prices: NDArray[np.float64]
) -> NDArray[np.floating[Any]]:
    """Return items and then all interests of users as points whose inner product is relevance minus price.

    They are the paper's h and q with two changes that keep all rankings: the mean of the prices is subtracted, and
    one-hot columns and prices are scaled to the same size, because one-hot columns can be much longer than embeddings
    and would dominate the map.

    Examples
    --------
    >>> from fairsync import Catalog
    >>> catalog = Catalog(np.array([[3.0], [2.0]]), ["a", "b"])
    >>> points = dual_space(catalog, np.arange(2), np.ones((1, 1)), np.array([0.0, -1.5]))
    >>> (points[:2] @ points[2]).round(2).tolist()  # 3 - 0.75 and 2 + 0.75
    [2.25, 2.75]
    """
    interests = users.reshape(-1, users.shape[-1])
    shifted = prices - prices.mean()
    size = max(float(np.sqrt(np.linalg.norm(shifted))), 1e-12)  # without prices, the added coordinates are 0
    h = np.hstack([catalog.embeddings[rows], size * np.eye(catalog.n_groups)[catalog.group_of[rows]]])
    q = np.hstack([interests, np.tile(-shifted / size, (len(interests), 1))])
    return np.vstack([h, q])


def _trial(lab: Lab) -> Trial:
    """Return the trial of the figure: FairSync with the largest K, as in the paper."""
    k = max(lab.setting.ks)
    return lab.trial("fairsync", k, lab.binding_floor(k))


def _found(lab: Lab) -> dict[str, Any]:
    trial = _trial(lab)
    terms = {name: getattr(trial, name) for name in ("model", "seed", "k", "floor", "batch_size")}
    found: dict[str, Any] = lab.cell("embedding-map", terms, partial(_compute, lab))
    return found


def _compute(lab: Lab) -> dict[str, Any]:
    trial = _trial(lab)
    base, rng = lab.trials.base(trial), np.random.default_rng(trial.seed)
    catalog, users = base.catalog, base.test.users
    moments = [max(1, round(share * len(users))) for share in _MOMENTS]

    plain = FairRetriever(
        catalog, k=trial.k, floors=0, horizon=len(users), policy="none", batch_size=trial.batch_size
    ).retrieve(users)
    groups = catalog.group_of[plain.rows]
    without = [np.bincount(groups[:moment].ravel(), minlength=catalog.n_groups) for moment in moments]
    fifths = np.array_split(np.argsort(without[-1], kind="stable"), _GROUPS)
    codes = np.array([rng.choice(fifth) for fifth in fifths if len(fifth)], dtype=np.intp)

    policy = make_method(trial.method, lab.trials.tuned(trial), lab.trials.scale(trial))
    retriever = FairRetriever(
        catalog, k=trial.k, floors=trial.floor, horizon=len(users), policy=policy, batch_size=trial.batch_size
    )
    exposures, prices, served = [], [np.zeros(catalog.n_groups)], 0
    for moment in moments:
        retriever.retrieve(users[served:moment])
        served, report = moment, retriever.report()
        exposures.append(np.array(list(report.exposures.values())))
        prices.append(np.array(list(report.prices.values())))

    asked = users[rng.permutation(len(users))[:_USERS_ASKED]]
    drawn = [rng.permutation(np.flatnonzero(catalog.group_of == code))[:_ITEMS_OF_A_GROUP] for code in codes]
    rows, mapped = np.concatenate(drawn), asked[:_USERS_ON_THE_MAP]
    original = np.vstack([catalog.embeddings[rows], mapped.reshape(-1, users.shape[-1])])
    rounds = _QUICK_ROUNDS if lab.setting.quick else _ROUNDS
    maps = [_map(original, None, rounds, trial.seed)]
    # Each map is initialised with the first one, so that points that do not move stay in place.
    maps += [_map(dual_space(catalog, rows, mapped, one), maps[0], rounds, trial.seed) for one in prices[1:]]
    return {
        "groups": [str(catalog.labels[code]) for code in codes],
        "moments": moments,
        "exposures": [one[codes].tolist() for one in exposures],
        "without": [one[codes].tolist() for one in without],
        "due": [trial.floor * moment / len(users) for moment in moments],
        "prices": [one[codes].tolist() for one in prices[1:]],
        "ranks": [mean_ranks(catalog, asked, one, codes).tolist() for one in prices],
        "users": len(asked),
        "items": np.repeat(np.arange(len(codes)), list(map(len, drawn))).tolist(),
        "maps": [np.round(one, 3).tolist() for one in maps],
    }


def _map(
    vectors: NDArray[np.floating[Any]], start: NDArray[np.float32] | None, rounds: int, seed: int
) -> NDArray[np.float32]:
    """Return two coordinates for each vector."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise MissingPackageError("t-SNE needs scikit-learn: pip install 'fairsync[experiments]'.") from error
    # t-SNE needs a small initial map, so that points can pass each other.
    init = "pca" if start is None else 1e-4 * start / start[:, 0].std()
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    method = TSNE(perplexity=perplexity, init=init, max_iter=rounds, random_state=seed)
    coordinates: NDArray[np.float32] = method.fit_transform(vectors.astype(np.float32))
    return coordinates


def _show(lab: Lab) -> Exhibit:
    found, trial = _found(lab), _trial(lab)
    rows = [
        [
            moment, group, found["exposures"][at][g], found["without"][at][g], found["due"][at],
            found["prices"][at][g], found["ranks"][0][g], found["ranks"][at + 1][g],
        ]
        for at, moment in enumerate(found["moments"])
        for g, group in enumerate(found["groups"])
    ]  # fmt: skip
    columns = ["requests", "group", "exposures", "without floors", "due", "price", "rank", "rank in dual space"]
    words = _WORDS.format(
        groups=len(found["groups"]), model=trial.model, k=trial.k, floor=trial.floor, users=found["users"]
    )
    return Exhibit(EXPERIMENT.name, EXPERIMENT.title, words, ExhibitTable(columns, rows, digits=3), _draw(found))


def _draw(found: Mapping[str, Any]) -> Figure:
    """Plot the maps in the upper row (the model's space, then the dual space at each moment) and exposures below."""
    moments, names = found["moments"], found["groups"]
    figure = Figure(figsize=(3.0 * (1 + len(moments)), 5.6), layout="constrained", dpi=150)
    maps, bars = figure.subplots(2, 1 + len(moments), height_ratios=[3, 2])
    titles = ["original space", *(f"dual space, {moment:,} request{'s' * (moment != 1)}" for moment in moments)]
    for axes, title, places in zip(maps, titles, found["maps"], strict=True):
        _draw_map(axes, np.array(places), np.array(found["items"]))
        axes.set_title(title, loc="left", fontsize=10, weight="bold")
    x = np.arange(len(names))
    for axes, exposures, due in zip(bars[1:], found["exposures"], found["due"], strict=True):
        axes.bar(x, exposures, color=_COLOURS[: len(names)], width=0.7)
        floors = np.full(len(names), max(1, round(due)))
        mark_floors(axes, x, floors)
        scale_counts(axes, np.concatenate([exposures, floors]))
        axes.set_xticks([])
        axes.set_xlabel("group")
        tidy(axes)
    bars[1].set_ylabel("exposures so far")
    bars[0].axis("off")
    short = [name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…" for name in names]
    handles = [
        Line2D([], [], linestyle="", marker="o", color=colour, label=name.replace("$", r"\$"))
        for colour, name in zip(_COLOURS, short, strict=False)
    ]
    handles.append(Line2D([], [], linestyle="", marker="+", color="black", label="users"))
    handles.append(Line2D([], [], color="black", linewidth=1.4, label="floor's share so far"))
    bars[0].legend(handles=handles, loc="center left", frameon=False, fontsize=9)
    return figure


def _draw_map(axes: Axes, places: NDArray[Any], items: NDArray[Any]) -> None:
    """Draw the items in the colours of their groups, and the users."""
    (item_x, user_x), (item_y, user_y) = (np.split(one, [len(items)]) for one in places.T)
    axes.scatter(user_x, user_y, marker="+", s=16, linewidths=0.7, color="black", alpha=0.5)
    axes.scatter(item_x, item_y, s=11, color=[_COLOURS[item] for item in items], linewidths=0, alpha=0.9)
    axes.set_xticks([])
    axes.set_yticks([])


EXPERIMENT = Experiment(
    "t-sne",
    "Figure: embeddings in the original and the dual space",
    _show,
    steps=lambda lab: [WorkStep("maps by t-SNE", partial(_found, lab))],
)
