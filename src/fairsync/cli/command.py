"""The class of every command: an option that is repeated is an error, unless it takes several values."""

from __future__ import annotations

from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperOption


class Command(TyperCommand):
    """A command that refuses ``--k 5 --k 20`` if only the last value would be used."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of a command line."""
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, times in Counter(order).items():
            if times > 1 and isinstance(parameter, TyperOption) and not parameter.multiple:
                ctx.fail(f"{max(parameter.opts, key=len)} was given {times} times, and takes one value: give it once.")
        return super().parse_args(ctx, args)
