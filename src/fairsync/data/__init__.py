"""Data sets: readers of published sources and of your own files, splits into training and test, and replay."""

from contextlib import suppress
from typing import TYPE_CHECKING

from fairsync.data.replay import Replay, replay
from fairsync.data.requests import Requests
from fairsync.data.splits import Split, split_by_time, split_by_users
from fairsync.data.synthetic import Synthetic, synthetic
from fairsync.errors import MissingPackageError
from fairsync.ragged import PADDING, Ragged

with suppress(MissingPackageError):  # `__getattr__` raises it for these names, and the others work without polars
    from fairsync.data.amazon import read_amazon
    from fairsync.data.catalog_files import read_catalog, read_targets
    from fairsync.data.completejourney import read_completejourney
    from fairsync.data.dataset import Dataset, Facts
    from fairsync.data.log import Log
    from fairsync.data.prepare import prepare
    from fairsync.data.table import Columns, read_table
    from fairsync.data.taobao import read_taobao
    from fairsync.data.vectors import read_vectors

__all__ = [
    "PADDING",
    "Columns",
    "Dataset",
    "Facts",
    "Log",
    "Ragged",
    "Replay",
    "Requests",
    "Split",
    "Synthetic",
    "prepare",
    "read_amazon",
    "read_catalog",
    "read_completejourney",
    "read_table",
    "read_taobao",
    "read_targets",
    "read_vectors",
    "replay",
    "split_by_time",
    "split_by_users",
    "synthetic",
]

if not TYPE_CHECKING:  # type checkers know all names from the imports above, and should refuse any other

    def __getattr__(name: str) -> object:
        if name in __all__:
            from fairsync.extras import polars  # noqa: F401
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
