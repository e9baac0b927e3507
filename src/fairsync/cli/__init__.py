"""The command line interface: ``fairsync COMMAND``. Each command has a module of its own."""

from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from fairsync import __version__
from fairsync.cli.bench import bench
from fairsync.cli.check import check
from fairsync.cli.cluster import cluster
from fairsync.cli.command import Command
from fairsync.cli.demo import demo
from fairsync.cli.evaluate import evaluate
from fairsync.cli.export import export
from fairsync.cli.ledger import ledger
from fairsync.cli.prepare import prepare
from fairsync.cli.reproduce import reproduce
from fairsync.cli.serve import serve
from fairsync.cli.train import train
from fairsync.errors import FairSyncError

__all__ = ["app"]


class _Commands(TyperGroup):
    """Prints an error of FairSync or the operating system as one line, without a traceback."""

    def get_params(self, ctx: Any) -> Any:
        for command in self.commands.values():
            _hide_flag_types(command, ctx)
        return _without_flag_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (FairSyncError, OSError) as error:  # OSError: for example a path that cannot be written
            message = " ".join(str(error).split())
            Console(stderr=True, soft_wrap=True, highlight=False).print(message, style="red", markup=False)
            raise typer.Exit(1) from None


def _hide_flag_types(command: Any, ctx: Any) -> None:
    """Show flags without a type in help pages: they take no value."""
    _without_flag_types(command.get_params(ctx))
    for one in getattr(command, "commands", {}).values():
        _hide_flag_types(one, ctx)


def _without_flag_types(parameters: Any) -> Any:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


app = typer.Typer(
    cls=_Commands,
    name="fairsync",
    help="Guaranteed exposure for recommendation retrieval: every group gets its floor of exposures.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fairsync {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


app.command(cls=Command)(demo)
app.add_typer(prepare, name="prepare")
app.command(cls=Command)(train)
app.command(cls=Command)(evaluate)
app.command(cls=Command)(reproduce)
app.command(cls=Command)(bench)
app.add_typer(cluster, name="cluster")
app.command(cls=Command)(serve)
app.command(cls=Command)(check)
app.command(cls=Command)(export)
app.add_typer(ledger, name="ledger")
