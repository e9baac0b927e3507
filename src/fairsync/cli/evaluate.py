"""``fairsync evaluate``: measure the accuracy of candidates and the distribution of exposure."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fairsync.cli.progress import progress_bar
from fairsync.cli.promise_options import (
    BudgetOption,
    EachOption,
    GiveWayOption,
    PromiseOption,
    PromisesOption,
    read_budget,
    read_floors,
    read_promises,
)
from fairsync.errors import InvalidInputError
from fairsync.evaluation import evaluate as evaluate_source
from fairsync.evaluation import from_files, from_model
from fairsync.policies import POLICIES
from fairsync.text import count

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress, TaskID

    from fairsync.evaluation import Evaluation, EvaluationSource


class RequestsOf(StrEnum):
    """The requests that a model is evaluated on."""

    users = "users"
    time = "time"
    replay = "replay"


_OWN = "Your own vectors"


def evaluate(
    model: Annotated[
        Path | None,
        typer.Argument(help="Folder of a model, from 'fairsync train'. Default: your own vectors.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the data set it was trained on. Default: data/NAME.", show_default=False),
    ] = None,
    requests: Annotated[
        RequestsOf | None,
        typer.Option(
            help="The test part by users or by time, or every visit of the test period in order of time. Default: the"
            " split that the model was trained with.",
            show_default=False,
        ),
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(
            help="Items: a catalog (a folder, or .parquet, .csv, .npz: id, attributes, embedding), or with --groups"
            " their vectors (.npy, .npz, .parquet, .pt).",
            rich_help_panel=_OWN,
            show_default=False,
        ),
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option(
            help="Vectors of the requests, in order of arrival; one or several per user.",
            rich_help_panel=_OWN,
            show_default=False,
        ),
    ] = None,
    groups: Annotated[
        Path | None,
        typer.Option(
            help="Parquet or CSV: item, group, further attributes. Not for a catalog.",
            rich_help_panel=_OWN,
            show_default=False,
        ),
    ] = None,
    targets: Annotated[
        Path | None,
        typer.Option(
            help="Parquet or CSV: user, item. Without it, only exposure is measured.",
            rich_help_panel=_OWN,
            show_default=False,
        ),
    ] = None,
    k: Annotated[
        list[int] | None,
        typer.Option("--k", min=1, help="Candidates per request. Repeatable. Default: 20 and 50."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(POLICIES)}. Repeatable. Default: none.", show_default=False),
    ] = None,
    floor: Annotated[
        int | None, typer.Option(min=1, help="Exposures promised to every group.", show_default=False)
    ] = None,
    floors: Annotated[
        Path | None,
        typer.Option(
            help="JSON or TOML: {label: exposures}. Groups that are not named have no floor.", show_default=False
        ),
    ] = None,
    promise: PromiseOption = None,
    each: EachOption = None,
    promises: PromisesOption = None,
    give_way: GiveWayOption = False,
    budget: BudgetOption = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Requests between two price changes.")] = 16,
    include_history: Annotated[
        bool,
        typer.Option(
            "--include-history",
            help="Also recommend what is in the history of a user, and count it as a target, as papers do.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Write evaluation.json and exposures.png here.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the contents of evaluation.json only.")] = False,
) -> None:
    """Measure the accuracy of candidates, and how exposure is distributed among groups.

    Evaluate a trained model on its test requests:

        fairsync evaluate models/completejourney-svd

    Compare the same requests with and without floors:

        fairsync evaluate models/completejourney-svd --policy none --policy guaranteed --floor 20

    Promises may overlap, and have upper bounds and shares of all slots:

        fairsync evaluate models/shop-svd --k 20 --policy none --policy guaranteed --each 'seller at_least=20'
        --promise 'category=toys at_least=5% at_most=30%' --promise 'new=true category=books at_least=500'

    Items in the history of a user are neither recommended nor targets, unless --include-history is given.

    Evaluate the vectors of any other library:

        fairsync evaluate --items items.npy --users users.npy --groups groups.parquet --targets targets.parquet

        fairsync evaluate --items items.parquet --users users.npy
    """
    screen = Console(quiet=as_json, highlight=False)
    if floor is not None and floors is not None:
        raise InvalidInputError("Give --floor or --floors, not both.")
    source = _source(model, data, requests, {"items": items, "users": users, "groups": groups, "targets": targets})
    given = read_promises(source.catalog, promise, each, promises)
    exclude, left_out = None, 0
    if not include_history:
        source, exclude, left_out = source.without_history()
    with progress_bar(hidden=as_json) as bar:
        found = evaluate_source(
            source.catalog,
            source.users,
            source.targets,
            ks=k or [one for one in (20, 50) if one <= len(source.catalog)] or [len(source.catalog)],
            floors=read_floors(floors, source.catalog) if floors else floor or 0,
            promises=given,
            if_infeasible="give way" if give_way else "refuse",
            budget=read_budget(budget),
            policies=policy or ["none"],
            batch_size=batch_size,
            watch=_watcher(bar, len(source.users)),
            exclude=exclude,
        )
    facts = {"excludes_history": exclude is not None, "targets_in_history": left_out}
    document = {"source": source.origin, **facts, **found.to_dict()}
    written = [] if out is None else _write(out, document, found)
    if as_json:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    screen.print(_title(source), markup=False)
    screen.print(found)
    if exclude is not None:
        screen.print(
            f"What a user's history holds is left out, and {count(left_out, 'target')} with it: --include-history keeps"
            " both."
        )
    if found.unknown_targets:
        screen.print(
            f"{count(found.unknown_targets, 'target')} not in the catalog: counted as not found.", style="yellow"
        )
    if found.cold_requests:
        screen.print(
            f"{count(found.cold_requests, 'request')} without a known history: answered by the mean user before.",
            style="yellow",
        )
    if source.targets is None:
        screen.print("No targets were given (--targets), so accuracy is not measured.", style="yellow")
    if written:
        screen.print(f"Written: {', '.join(map(str, written))}", soft_wrap=True, markup=False)


def _source(
    model: Path | None, data: Path | None, requests: RequestsOf | None, files: dict[str, Path | None]
) -> EvaluationSource:
    """Return the source of the evaluation: either a model or files."""
    if model is not None:
        extra = [name for name, path in files.items() if path is not None]
        if extra:
            raise InvalidInputError(f"--{extra[0]} is for vectors of your own: leave it out, or leave out {model}.")
        return from_model(model, data, requests and requests.value)
    if data is not None or requests is not None:
        raise InvalidInputError("--data and --requests are for a model of 'fairsync train': name its folder.")
    missing = [name for name in ("items", "users") if files[name] is None]
    if missing:
        raise InvalidInputError(
            f"Name the folder of a model, or give your own vectors: --{', --'.join(missing)} missing."
        )
    return from_files(**files)  # type: ignore[arg-type]


def _title(source: EvaluationSource) -> str:
    what = f"{source.origin['model']} on {source.origin['data']}, " if "model" in source.origin else ""
    kind = f" ({source.origin['requests']})" if "requests" in source.origin else ""
    catalog = source.catalog
    return (
        f"{what}{count(len(source.users), 'request')}{kind}, {count(len(catalog), 'item')}"
        f" in {count(catalog.n_groups, 'group')}"
    )


def _watcher(bar: Progress, total: int) -> Callable[[str, int, int], None]:
    tasks: dict[tuple[str, int], TaskID] = {}

    def show(policy: str, k: int, done: int) -> None:
        if (policy, k) not in tasks:
            tasks[policy, k] = bar.add_task(f"{policy}, K = {k}", total=total)
        bar.update(tasks[policy, k], completed=done)

    return show


def _write(out: Path, document: dict[str, Any], found: Evaluation) -> list[Path]:
    from fairsync.evaluation.plot import plot_exposures
    from fairsync.report.plot import save

    out.mkdir(parents=True, exist_ok=True)
    path = out / "evaluation.json"
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return [path, save(plot_exposures(found), out / "exposures.png")]
