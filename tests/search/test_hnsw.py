"""The graph index: a higher recall needs a broader search."""

from fairsync.search import HnswIndex
from search.approximate import make_case


def test_more_recall_is_a_broader_search() -> None:
    catalog, _ = make_case(1, n=6000, dim=16)
    assert HnswIndex(catalog, 0.8, exact_below=0).breadth < HnswIndex(catalog, 0.999, exact_below=0).breadth
