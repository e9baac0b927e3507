"""The URL of a new ledger in each dialect."""

from pathlib import Path

import pytest

from ledger.writing import new_schema


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/exposures.db"
    return new_schema(request.getfixturevalue("postgres"))
