"""Ids and labels in calls follow the rule of the catalog."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.catalog.names import is_name
from fairsync.service.schema import UpsertItems


def body(name: str | int) -> bytes:
    return msgspec.json.encode({"ids": [name], "groups": [name], "embeddings": [[1.0]]})


@given(st.text(min_size=1, max_size=500) | st.integers(-(2**63) + 1, 2**63 - 1))
def test_a_new_name_is_refused_exactly_where_the_catalog_refuses_it(name: str | int) -> None:
    if is_name(name):
        assert msgspec.json.decode(body(name), type=UpsertItems).ids == [name]
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(body(name), type=UpsertItems)


@pytest.mark.parametrize("name", ["a\0", "a\n", "\x7f", "a\x85"])
def test_control_characters_are_refused(name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="regex"):
        msgspec.json.decode(body(name), type=UpsertItems)
