"""The catalog: items with their groups. `fairsync.catalog.changes` changes one, `fairsync.catalog.files` stores one."""

from fairsync.catalog.catalog import LARGEST_VALUE, Catalog, check_values
from fairsync.catalog.conditions import Where
from fairsync.catalog.groups import Grouped, Groups, Label, grow
from fairsync.catalog.names import check_names, check_same_kind
from fairsync.catalog.selection import Selection

__all__ = [
    "LARGEST_VALUE",
    "Catalog",
    "Grouped",
    "Groups",
    "Label",
    "Selection",
    "Where",
    "check_names",
    "check_same_kind",
    "check_values",
    "grow",
]
