"""The catalog: items, their groups, and changes of both. `fairsync.catalog.files` keeps one on disk."""

from fairsync.catalog.catalog import LARGEST_VALUE, Catalog, check_names, check_same_kind
from fairsync.catalog.groups import Grouped, Groups, Label

__all__ = ["LARGEST_VALUE", "Catalog", "Grouped", "Groups", "Label", "check_names", "check_same_kind"]
