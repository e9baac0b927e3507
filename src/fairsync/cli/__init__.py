"""The command line interface: ``fairsync COMMAND``. Each command has a module of its own."""

from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from fairsync import __version__
from fairsync.cli.command import Command
from fairsync.errors import FairSyncError, MissingPackageError
from fairsync.extras import explain_missing

__all__ = ["app"]

_EXTRA_OF = {"demo": "demo", "reproduce": "experiments"}
"""The extra that installs all that a command needs, where one package is not enough."""
_ANY = {"allow_extra_args": True, "ignore_unknown_options": True}
_PANELS = {
    "See it work": ("demo",),
    "From a log to a service": ("prepare", "train", "evaluate", "export", "check", "serve"),
    "In production": ("statement", "ledger", "cluster"),
    "Measure": ("reproduce", "bench"),
}
"""The commands, by their panel in the help."""
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names}


class _Commands(TyperGroup):
    """Prints an error of FairSync or the operating system as one line, without a traceback.

    A command is imported when it is called, or listed: a service does not hold what only other commands need.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_PANEL_OF)

    def get_command(self, ctx: Any, name: str) -> Any:
        for one in [name] if name in _PANEL_OF else _PANEL_OF:  # all of them, to suggest one that is similar
            if one not in self.commands:
                self.commands[one] = _imported(one)
                self.commands[one].rich_help_panel = _PANEL_OF[one]  # type: ignore[attr-defined]
                _hide_flag_types(self.commands[one], ctx)
        return super().get_command(ctx, name)

    def get_params(self, ctx: Any) -> Any:
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
    help="Guaranteed exposure for recommendation retrieval: promises about items hold.",
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


def _imported(name: str) -> Any:
    """Return a command, or one that says what to install if a package that it needs is missing."""
    try:
        with explain_missing(f"fairsync {name}"):
            found = getattr(import_module(f"fairsync.cli.{name}"), name)
    except MissingPackageError as error:
        extra = _EXTRA_OF.get(name)
        found = _explain(
            MissingPackageError(f"fairsync {name} needs {error.name}: pip install 'fairsync[{extra}]'.")
            if extra
            else error
        )
    holder = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name, cls=Command, context_settings=_ANY if hasattr(found, "missing") else None)(found)
    return typer.main.get_group(holder).commands[name]


def _explain(error: MissingPackageError) -> Any:
    def stub() -> None:
        raise error

    stub.__doc__, stub.missing = f"Not installed: {error}", True  # type: ignore[attr-defined]
    return stub
