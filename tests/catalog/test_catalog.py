import pickle
from typing import Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.errors import FairSyncError, InfeasibleFloorsError, InvalidInputError, UnknownGroupError
from fairsync.promises import Promise
from fairsync.retriever import FairRetriever

EYE = np.eye(3, dtype=np.float32)


def test_codes_labels_and_sizes_describe_the_groups() -> None:
    catalog = Catalog(np.zeros((5, 2)), ["b", "a", "b", "c", "b"])
    assert catalog.labels == ["a", "b", "c"]
    assert catalog.group_of.tolist() == [1, 0, 1, 2, 1]
    assert catalog.group_of.dtype == np.int32
    assert catalog.group_sizes.tolist() == [1, 3, 1]
    assert catalog.group_sizes.dtype == np.int64
    assert (len(catalog), catalog.dim, catalog.n_groups) == (5, 2, 3)
    assert catalog.labels_of([[2, 0]]).tolist() == [["c", "a"]]
    assert repr(catalog) == "Catalog(5 items, 3 groups, dim 2, float64)"


@pytest.mark.parametrize(
    "groups",
    [
        [7, 3, 7],
        np.array([7, 3, 7], dtype=np.uint8),
        [np.int16(7), 3, np.int64(7)],
        np.array([7, 3, 7], dtype=object),
    ],
)
def test_integers_of_any_type_are_the_same_labels(groups: list[int]) -> None:
    catalog = Catalog(EYE, groups)
    assert catalog.labels == [3, 7]
    assert [type(label) for label in catalog.labels] == [int, int]
    assert catalog.code_of(7) == catalog.code_of(np.int32(7)) == 1


@pytest.mark.parametrize(
    "groups", [["x", "y", "x"], np.array(["x", "y", "x"]), np.array(["x", "y", "x"], dtype=object)]
)
def test_strings_of_any_type_are_the_same_labels(groups: list[str]) -> None:
    catalog = Catalog(EYE, groups)
    assert [type(label) for label in catalog.labels] == [str, str]
    assert catalog.code_of(np.str_("y")) == catalog.code_of("y") == 1


def test_embeddings_are_a_read_only_view_of_what_was_given() -> None:
    given = EYE.copy()
    catalog = Catalog(given, [1, 1, 1])
    assert np.shares_memory(catalog.embeddings, given)
    assert given.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        catalog.embeddings[0, 0] = 2.0


def test_other_layouts_are_accepted() -> None:
    values = np.arange(12.0).reshape(3, 4)
    for given in (np.asfortranarray(values), values.astype(">f8"), np.hstack([values, values])[:, :4]):
        assert (Catalog(given, [1, 1, 2]).embeddings == values).all()


def test_ids_default_to_row_numbers_without_storing_any() -> None:
    catalog = Catalog(EYE, [1, 1, 1])
    assert catalog.ids.tolist() == [0, 1, 2]
    assert catalog.ids_of([[2], [0]]).tolist() == [[2], [0]]
    assert catalog.rank is None
    assert not any(
        isinstance(held, np.ndarray) and held.dtype == np.int64 and len(held) == 3 for held in vars(catalog).values()
    )


def test_rank_is_the_position_in_the_order_of_ids() -> None:
    assert Catalog(EYE, [1, 1, 1], ids=[10, 20, 30]).rank is None
    rank = Catalog(EYE, [1, 1, 1], ids=["c", "a", "b"]).rank
    assert rank is not None
    assert rank.tolist() == [2, 0, 1]
    # Numbers are ordered as numbers, not as text.
    numbers = Catalog(EYE, [1, 1, 1], ids=[9, 100, 20]).rank
    assert numbers is not None
    assert numbers.tolist() == [0, 2, 1]


def test_later_changes_to_given_arrays_do_not_reach_ids_or_groups() -> None:
    groups, ids = np.array(["a", "b", "a"]), np.array([5, 6, 7])
    catalog = Catalog(EYE, groups, ids)
    groups[:] = "z"
    ids[:] = 0
    assert catalog.labels == ["a", "b"]
    assert catalog.ids.tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("embeddings", "groups", "ids", "says"),
    [
        (np.zeros((0, 3)), [], None, "empty"),
        (np.zeros((3, 0)), [1, 1, 1], None, "empty"),
        (np.zeros(3), [1, 1, 1], None, "1 dimension"),
        (np.zeros((3, 2), dtype=int), [1, 1, 1], None, "int64.*astype"),
        ([[1.0], [1.0, 2.0]], [1, 1], None, "equal rows"),
        (np.array([[0.0], [np.nan], [0.0]]), [1, 1, 1], None, "nan in row 1"),
        (np.array([[0.0], [0.0], [-np.inf]]), [1, 1, 1], None, "-inf in row 2"),
        (np.array([[0.0], [1e39], [0.0]]), [1, 1, 1], None, r"row 1, column 0: scale them below 1e\+38"),
        (EYE, [1, 1], None, "groups must be 3 labels"),
        (EYE, np.ones((3, 1), dtype=int), None, "groups must be 3 labels"),
        (EYE, ["a", None, "b"], None, "None.*position 1"),
        (EYE, ["a", "b", float("nan")], None, "nan.*position 2"),
        (EYE, [1.0, 2.0, 3.0], None, "float"),
        (EYE, np.array([1.0, 2.0, 3.0]), None, "float64"),
        (EYE, ["a", 1, "b"], None, "mix str"),
        (EYE, [True, False, True], None, "bool"),
        (EYE, np.array([True, False, True]), None, "bool"),
        (EYE, [1, 1, True], None, "bool.*position 2"),
        (EYE, [1, 1, 2**70], None, "64 bits"),
        (EYE, [1, 1, 1], [1, 2], "ids must be 3 ids"),
        (EYE, [1, 1, 1], ["a", "b", "a"], "'a' is in rows 0 and 2"),
        (EYE, [1, 1, 1], [4, 4, 2], "4 is in rows 0 and 1"),
        (EYE, [1, 1, 1], ["a", 2, "c"], "mix str"),
    ],
)
def test_bad_input_is_refused_with_the_reason(embeddings: object, groups: object, ids: object, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        Catalog(embeddings, groups, ids)  # type: ignore[arg-type]


def test_a_bad_value_far_down_is_found_with_its_row() -> None:
    embeddings = np.zeros((70_000, 32), dtype=np.float32)
    embeddings[65_432, 31] = np.inf
    with pytest.raises(InvalidInputError, match="row 65432, column 31"):
        Catalog(embeddings, np.zeros(70_000, dtype=int))


@pytest.mark.parametrize(("asked", "says"), [("sonny", "'Sony'"), (3, "such as"), (None, "such as"), (True, "such as")])
def test_unknown_labels_are_refused_with_close_ones(asked: object, says: str) -> None:
    catalog = Catalog(EYE, ["Sony", "Philips", "Bosch"])
    with pytest.raises(UnknownGroupError, match=says) as caught:
        catalog.code_of(asked)
    assert caught.value.labels == (asked,)


def test_a_bool_is_not_the_label_one() -> None:
    with pytest.raises(UnknownGroupError):
        Catalog(EYE, [0, 1, 1]).code_of(True)


def test_infeasible_floors_say_group_reason_and_remedy() -> None:
    error = InfeasibleFloorsError("Sony", 500, "it has 2 items", 200)
    assert isinstance(error, FairSyncError)
    assert isinstance(error, ValueError)
    assert (error.group, error.floor, error.reason, error.largest_feasible) == (
        "Sony",
        500,
        "it has 2 items",
        200,
    )
    for part in ("'Sony'", "500", "it has 2 items", "200"):
        assert part in str(error)
    assert "add up to 9" in str(InfeasibleFloorsError(None, 9, "there are 8 places", 8))


def test_errors_survive_a_process_border() -> None:
    import pickle

    for error in (InfeasibleFloorsError("a", 3, "why", 2), UnknownGroupError(["x"], ["y"])):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize("groups", [None, 5, "abc", {"a", "b", "c"}, {"a": 1, "b": 2, "c": 3}])
def test_labels_must_come_in_the_order_of_the_items(groups: Any) -> None:
    with pytest.raises(InvalidInputError, match="in the order of the items"):
        Catalog(np.eye(3), groups)


@pytest.mark.parametrize("rows", [None, "ab", [0.5], [float("nan")], [], [[0]], [3], [-1]])
def test_a_part_needs_rows(rows: Any) -> None:
    with pytest.raises(InvalidInputError, match="at least one row"):
        Catalog(EYE, [1, 1, 1]).part(rows)


def test_a_catalog_without_a_label_per_item_is_one_group() -> None:
    catalog = Catalog(np.eye(4), {"new": [True, False, True, False], "tags": [["a"], [], ["a", "b"], []]})
    assert catalog.labels == ["all"]
    assert [*catalog.attributes] == ["group", "new", "tags"]
    assert catalog.select({"new": True, "tags": "b"}).rows.tolist() == [2]  # type: ignore[union-attr]
    retriever = FairRetriever(catalog, k=1, horizon=10, promises=[Promise({"new": False}, at_least=6)])
    retriever.retrieve(np.tile([1.0, 0.5, 0.2, 0.1], (4, 1)))
    retriever.upsert(np.full((1, 4), 9.0), {"new": [False], "tags": [["b"]]}, [4])
    found = retriever.retrieve(np.tile([1.0, 0.5, 0.2, 0.1], (6, 1)))
    assert (found.ids == 4).any()
    assert (found.groups == "all").all()
    assert retriever.report().esp == 1.0
    with pytest.raises(InvalidInputError, match="one str or int"):
        Catalog(np.eye(2), {"group": [0.5, 1.5]})


def test_selected_items_are_counted_by_the_groups_that_the_catalog_has_now() -> None:
    rng = np.random.default_rng(0)
    catalog = Catalog(np.ones((50, 1)), ["a", "b", *rng.choice(["a", "b", "d"], 48)])
    other = rng.integers(3, 8, size=50)
    parts = [catalog, catalog.under(["c", "b"]), catalog.regrouped(other, 9), catalog.part(np.arange(10, 20))]
    for one in (*parts, parts[2].part(np.array([3, 1, 7])), parts[2].regrouped(other[::-1], 70_000)):
        mask = rng.random(len(one)) < 0.5
        assert one.group_sizes_of(mask).tolist() == np.bincount(one.group_of[mask], minlength=one.n_groups).tolist()
        assert one.group_of[one.rows_by_group].tolist() == sorted(one.group_of.tolist())


def test_a_label_of_another_attribute_is_no_group_and_the_error_names_the_attribute() -> None:
    catalog = Catalog(np.eye(3), {"category": ["toys", "books", "toys"], "provider": ["acme", "best", "best"]})
    for ask in (lambda: catalog.code_of("acme"), lambda: FairRetriever(catalog, k=1, floors={"acme": 1}, horizon=5)):
        with pytest.raises(UnknownGroupError, match="'acme' is a label of 'provider'") as caught:
            ask()
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert catalog.attribute_of("acme") == "provider"
    assert catalog.attribute_of("books") is None  # it is a group
    assert catalog.attribute_of("unknown") is None
