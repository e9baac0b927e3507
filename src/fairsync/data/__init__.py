"""Data sets: readers of published sources and of your own files, splits into training and test, and replay."""

from fairsync.data.amazon import read_amazon
from fairsync.data.catalog_files import read_catalog, read_targets
from fairsync.data.completejourney import read_completejourney
from fairsync.data.dataset import Dataset, Facts
from fairsync.data.log import Log
from fairsync.data.prepare import prepare
from fairsync.data.replay import Replay, replay
from fairsync.data.requests import Requests
from fairsync.data.splits import Split, split_by_time, split_by_users
from fairsync.data.synthetic import Synthetic, synthetic
from fairsync.data.table import Columns, read_table
from fairsync.data.taobao import read_taobao
from fairsync.data.vectors import read_vectors
from fairsync.ragged import PADDING, Ragged

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
