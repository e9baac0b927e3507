"""`fairsync check`: what a configuration means, and the problems in it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from fairsync.cli.check import check
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.ledger import SqlLedger
from fairsync.service.check import check as check_settings
from fairsync.service.run import make_promise_service
from fairsync.service.settings import HttpSettings, load_settings
from postgres_server import PASSWORD, QUOTED, PostgresServer
from service.config_file import PROMISES, configured, over_postgres

DEPLOY = Path(__file__).parents[2] / "deploy"


def run_check(config: Path, *options: str, columns: int = 200) -> Any:
    app = typer.Typer()
    app.command()(check)
    return CliRunner().invoke(app, [str(config), *options], env={"COLUMNS": str(columns)})


def test_explains_the_configuration_and_writes_nothing(tmp_path: Path) -> None:
    config = configured(tmp_path, PROMISES)
    done = run_check(config)
    assert done.exit_code == 0
    words = re.sub(r"\s+", " ", done.output)
    assert "60 items, 3 groups, dimension 8" in words
    assert "exact, 1 shard " in words
    assert "a second until requests are observed" in words
    assert "No problems found." in words
    assert sorted(os.listdir(tmp_path)) == ["items", "service.toml"]


def test_the_table_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    berlin = '[[promises]]\ngroup = "wine"\nfloor = 10_000\nwindow = {every = "day", zone = "Europe/Berlin"}\n'
    done = run_check(configured(tmp_path, berlin), columns=80)
    for whole in ("group=wine", "Europe/Berlin", "10,000", "259,200", "can be kept"):
        assert whole in done.output


def test_the_table_has_all_bounds_of_a_promise(tmp_path: Path) -> None:
    bounds = "at_least = 0.05\nat_most = 100_000\nat_most_per_list = 2\n"
    text = '[[promises]]\nwhere = {group = "%s"}\n%swindow = {every = "day"}\n'
    done = run_check(configured(tmp_path, text % ("wine", bounds) + text % ("toys", "at_most = 0.3\n")))
    for whole in ("≥ 5 %", "≤ 100,000", "≤ 2 per list", "≤ 30 %"):
        assert whole in done.output
    (row,) = [line.split() for line in done.output.splitlines() if "group=toys" in line]
    assert row == ["group=toys", "each", "day,", "≤", "30", "%", "can", "be", "kept"], "no floor of it is in question"


def test_the_table_has_no_name_of_thousands_of_labels(tmp_path: Path) -> None:
    many = ", ".join(f'"item-{number}"' for number in range(18))
    text = f'[[promises]]\nwhere = {{id = [{many}]}}\nat_most = 300\nwindow = {{every = "day"}}\n'
    done = run_check(configured(tmp_path, text), columns=300)
    assert "id=item-0 or item-1 " in done.output
    assert "item-17" not in done.output


def test_warns_if_every_request_with_a_history_is_limited(tmp_path: Path) -> None:
    config = configured(tmp_path, '[model]\npath = "nowhere"\n')
    assert any("max_exclude is 0" in one for one in check_settings(load_settings(config, {}), {}).warnings)
    assert not check_settings(load_settings(config, {"FAIRSYNC_PROMISE_MAX_EXCLUDE": "20"}), {}).warnings


@pytest.mark.parametrize("name", ["one-process", "ray", "replicas"])
def test_the_examples_in_deploy_have_no_problems(tmp_path: Path, name: str) -> None:
    configured(tmp_path)
    overrides = {
        "FAIRSYNC_CATALOG_PATH": str(tmp_path / "items"),
        "FAIRSYNC_LEDGER_URL": f"sqlite:///{tmp_path}/exposures.db",  # the server of replicas.toml does not run here
    }
    tokens = {"SHOP_TOKEN": "a-long-random-token-1", "CAMPAIGNS_TOKEN": "a-long-random-token-2"}
    assert check_settings(load_settings(DEPLOY / f"{name}.toml", overrides), tokens).problems == []


def test_promises_that_cannot_be_kept_are_problems(tmp_path: Path) -> None:
    # A day has 86,400 requests of three slots: two groups cannot have 150,000 each.
    both = "".join(
        f'[[promises]]\ngroup = "{group}"\nfloor = 150_000\nwindow = {{every = "day"}}\n' for group in ("wine", "toys")
    )
    done = run_check(configured(tmp_path, both), "--json")
    assert done.exit_code == 1
    document = json.loads(done.output)
    assert [one["accepted"] for one in document["promises"]] == [False, False]
    assert [one["largest"] for one in document["promises"]] == [3 * 86_400 - 150_000] * 2
    assert "cannot be kept" in document["problems"][0]


def test_mistakes_in_promises_are_told_with_the_remedy(tmp_path: Path) -> None:
    promises = '[[promises]]\nwhere = {}\nat_least = 5.0\nwindow = {every = "day"}\n'
    words = (
        "at_least is 5.0: a share of all slots is at most 1.0, and a number of exposures is a whole number, such as 5"
    )
    with pytest.raises(InvalidInputError, match=words):
        load_settings(configured(tmp_path, promises), {})
    with pytest.raises(InvalidInputError, match="expected one of 'hour', 'day', 'week', 'campaign'"):
        load_settings(configured(tmp_path, promises.replace("5.0", "5").replace("day", "month")), {})


def test_describes_the_ledger_in_postgres_and_writes_nothing(tmp_path: Path) -> None:
    config = configured(tmp_path, PROMISES)
    with PostgresServer("fsync=off") as server:
        over_postgres(config, server)
        done = run_check(config, "--json")
        document = json.loads(done.output)
        assert done.exit_code == 0, document
        address = f"postgresql://127.0.0.1:{server.port}/postgres (schema shop)"
        assert document["facts"]["ledger"] == f"{address}, a new ledger"
        assert document["warnings"] == [f"{address} may lose exposures that it has acknowledged: set 'fsync = on'."]
        assert not server.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'shop'")
        promise_service = make_promise_service(load_settings(config, {}))
        ledger = json.loads(run_check(config, "--json").output)["facts"]["ledger"]
        assert re.search(r"0 requests so far, 3 groups; the promises in it apply.*500 exposures of \w+=wine", ledger)
        config.write_text(config.read_text().replace("k = 3", "k = 4"))
        done = run_check(config, "--json")
        assert done.exit_code == 1
        document = json.loads(done.output)
        assert "differs in k (4 here, 3 there)" in document["problems"][0]
        assert address in document["facts"]["ledger"]
        promise_service.coordinator.close()
        promise_service.coordinator.ledger.close()
        server.kill()
        away = run_check(config, "--json")
        server.start()
    assert away.exit_code == 1
    (problem,) = json.loads(away.output)["problems"]
    assert "Is the server up?" in problem
    assert PASSWORD not in away.output
    assert QUOTED not in away.output


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (QUOTED, "wrong", "Check user, password and rights"),
        ("/postgres?", "/nowhere?", "Check user, password and rights"),
        ("schema=shop", "schema=other", "has other tables, and no ledger: name another schema"),
        ("schema=shop", "schema=later", "written by a later version of FairSync"),
    ],
)
def test_a_ledger_in_postgres_that_cannot_be_used_is_a_problem(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    with PostgresServer() as server:
        server.execute("CREATE SCHEMA other")
        server.execute("CREATE TABLE other.horizons (number integer)")
        SqlLedger(server.schema("later"), 3).close()
        server.execute("UPDATE later.facts SET value = '99' WHERE name = 'format'")
        config = over_postgres(configured(tmp_path), server)
        config.write_text(config.read_text().replace(before, after))
        done = run_check(config, "--json")
        assert done.exit_code == 1
        (problem,) = json.loads(done.output)["problems"]
        assert message in problem
        assert QUOTED not in done.output
        assert "wrong" not in problem
        with pytest.raises(FairSyncError, match=re.escape(message)):  # and so says the service that is started
            make_promise_service(load_settings(config, {}))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[[tokens]]\nname = "a"\nroles = ["admin"]\nenv = "NOT_SET_ANYWHERE"\n', "NOT_SET_ANYWHERE, which is not set"),
        ('[model]\npath = "nowhere"\n', "is not a model"),
    ],
)
def test_a_start_that_would_fail_is_a_problem(tmp_path: Path, more: str, message: str) -> None:
    done = run_check(configured(tmp_path, more), "--json")
    assert done.exit_code == 1
    assert message in " ".join(json.loads(done.output)["problems"])


def test_describes_the_ledger_file_and_writes_nothing(tmp_path: Path) -> None:
    config, file = configured(tmp_path), tmp_path / "exposures.db"
    promise_service = make_promise_service(load_settings(config, {}))
    promise_service.retrieve(np.ones((5, 8)))
    promise_service.close()
    promise_service.coordinator.ledger.close()
    before = file.read_bytes()
    done = json.loads(run_check(config, "--json").output)
    assert "5 requests so far, 3 groups; the promises in it apply, not those of the settings" in done["facts"]["ledger"]
    assert file.read_bytes() == before
    file.write_bytes(b"no ledger at all" * 1000)
    done = run_check(config, "--json")
    assert done.exit_code == 1
    assert "damaged or no ledger" in json.loads(done.output)["problems"][0]


def test_the_systemd_unit_bounds_memory_system_calls_and_the_time_to_stop() -> None:
    lines = (DEPLOY / "fairsync.service").read_text().splitlines()
    unit = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    assert {"MemoryMax", "SystemCallFilter", "LimitNOFILE"} <= set(unit)
    limits = HttpSettings()
    assert int(unit["TimeoutStopSec"]) > limits.drain_seconds + limits.shutdown_seconds
    assert int(unit["LimitNOFILE"]) > limits.max_connections


def test_what_a_request_may_exclude_limits_promises(tmp_path: Path) -> None:
    """Each group has 20 items, of which two remain; with 20 nothing is certain, and 58 leave too few for a list."""
    floor = '[[promises]]\ngroup = "toys"\nfloor = 150_000\nwindow = {every = "day"}\n'
    config = configured(tmp_path, floor)
    for most, words in [
        (0, None),
        (18, None),
        (19, "largest feasible floor is 86,400"),
        (20, "max_exclude"),
        (58, "58"),
    ]:
        settings = load_settings(config, {"FAIRSYNC_PROMISE_MAX_EXCLUDE": str(most)})
        problems = check_settings(settings).problems
        assert (words is None and problems == []) or (words is not None and words in problems[0]), (most, problems)
    service = make_promise_service(load_settings(config, {"FAIRSYNC_PROMISE_MAX_EXCLUDE": "18"}))
    assert service.coordinator.terms.capacities.tolist() == [2, 2, 2]
    service.coordinator.ledger.close()


@pytest.mark.parametrize(
    ("cold", "problem"), [("[999]", "ids that the catalog does not hold"), ("[0.5]", "dimensions")]
)
def test_a_fallback_for_cold_users_that_cannot_be(tmp_path: Path, cold: str, problem: str) -> None:
    config = configured(tmp_path)
    config.write_text(config.read_text().replace("k = 3", f"k = 3\ncold = {cold}"))
    assert any(problem in one for one in check_settings(load_settings(config, {})).problems)
    with pytest.raises(FairSyncError, match=problem):
        make_promise_service(load_settings(config, {}))
