"""Alert rules and the Grafana dashboard speak of metrics and labels that the service really exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fairsync.schedule import ScheduledPromise, Window
from fairsync.service.promises.cost_monitor import FEWEST
from service.running import make_settings, running, small_service
from service.service_process import free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
ALERTS, RUNBOOK = ROOT / "deploy" / "prometheus" / "alerts.yml", ROOT / "docs" / "runbook"
# Labels that Prometheus adds.
ADDED = {"job", "instance", "le"}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def queries() -> list[str]:
    """Return every query of the Grafana dashboard, with its variables filled in."""
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "fairsync.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [query.replace("$instance", ".*") for query in found]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A service with a promise that has answered requests, refused one, and estimated what the promise costs."""
    service = small_service(per_second=100)
    service.editor.set_promise(ScheduledPromise.of_group("toys", 10, Window.day("UTC")))
    with running(service, make_settings()) as one:
        vectors = np.random.default_rng(0).normal(size=(FEWEST, 8)).tolist()
        httpx.post(f"{one.url}/v1/retrieve", json={"vectors": vectors}, timeout=60).raise_for_status()
        assert httpx.post(f"{one.url}/v1/retrieve", json={}, timeout=60).status_code == 422
        wait_until(lambda: "\nfairsync_least_cost_share " in httpx.get(f"{one.url}/metrics", timeout=60).text)
        yield one.url


def used(expression: str) -> set[tuple[str, str]]:
    """Return the metrics of an expression with the labels that it matches, and those that it groups by."""
    by = {label for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in group.split(", ")}
    found = set()
    for name, matchers in re.findall(r"\b(fairsync_\w+)(?:\{([^}]*)\})?", expression):
        labels = set(re.findall(r"(\w+)=", matchers)) | by
        found |= {(name, label) for label in labels - ADDED} or {(name, "")}
    return found


def test_every_metric_and_label_is_exported(url: str) -> None:
    text = httpx.get(f"{url}/metrics", timeout=60).text
    exported: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            exported.setdefault(sample.name, set()).update(sample.labels)
    expressions = [*(rule["expr"] for rule in rules()), *queries()]
    wanted = {pair for expression in expressions for pair in used(expression)}
    assert len(wanted) > 15
    for name, label in sorted(wanted):
        assert name in exported, name
        assert not label or label in exported[name], (name, label)


def test_every_alert_has_a_page_of_the_runbook_and_every_page_an_alert() -> None:
    pages = {rule["alert"]: rule["annotations"]["runbook"] for rule in rules()}
    for alert, page in pages.items():
        text = (ROOT / page).read_text()
        assert text.startswith(f"# {alert}\n")
        (expression,) = [rule["expr"] for rule in rules() if rule["alert"] == alert]
        assert expression in text, "the page shows the present rule"
        assert "## Look\n" in text
        assert "## Do\n" in text
    assert {f"docs/runbook/{path.name}" for path in RUNBOOK.glob("[!R]*.md")} == set(pages.values())
    index = (RUNBOOK / "README.md").read_text()
    assert all(f"[{alert}]({Path(page).name})" in index for alert, page in pages.items())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_rules_and_they_fire_as_meant() -> None:
    for command in (["check", "rules", ALERTS], ["test", "rules", ALERTS.with_name("alerts_test.yml")]):
        done = subprocess.run(["promtool", *map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_prometheus_evaluates_all_of_it_on_a_running_service(url: str, tmp_path: Path) -> None:
    config = yaml.safe_load(ALERTS.with_name("prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(ALERTS)]
    (job,) = config["scrape_configs"]
    del job["authorization"]  # this service has no tokens
    job["static_configs"] = [{"targets": [url.removeprefix("http://")]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    with subprocess.Popen(command) as process, ExitStack() as opened:
        try:
            ask = opened.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=60))
            deadline = time.monotonic() + 240

            def result(query: str) -> list[Any]:
                answer = ask.get("/query", params={"query": query}).json()
                assert answer["status"] == "success", answer
                return list(answer["data"]["result"])

            def is_scraped() -> bool:
                try:
                    return bool(result("count_over_time(fairsync_items[1m]) > 2"))
                except (httpx.TransportError, json.JSONDecodeError):  # it is starting
                    return False

            while not is_scraped():
                assert time.monotonic() < deadline
                assert process.poll() is None
                httpx.post(f"{url}/v1/retrieve", json={"vectors": np.ones((1, 8)).tolist()}, timeout=60)
                time.sleep(0.2)
            for query in queries():
                answered = result(query)
                if "shortfall" not in query:
                    assert answered, query
            while any(one["health"] == "unknown" for one in _rules(ask)):
                assert time.monotonic() < deadline
                time.sleep(0.2)
            assert {one["health"] for one in _rules(ask)} == {"ok"}
            firing = [one["name"] for one in _rules(ask) if one["state"] != "inactive"]
            assert firing in ([], ["FairSyncSlow"]), "nothing is wrong with this service, but perhaps its speed"
        finally:
            process.terminate()


def _rules(ask: httpx.Client) -> list[dict[str, Any]]:
    groups = ask.get("/rules").json()["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]
