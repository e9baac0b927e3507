"""The catalog: items with their groups. `fairsync.catalog.changes` changes one, `fairsync.catalog.files` stores one."""

from fairsync.catalog.catalog import LARGEST_VALUE, Catalog, check_names, check_same_kind
from fairsync.catalog.groups import Grouped, Groups, Label, grow

__all__ = ["LARGEST_VALUE", "Catalog", "Grouped", "Groups", "Label", "check_names", "check_same_kind", "grow"]
