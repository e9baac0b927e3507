"""What deploy/compose.yaml says, run without containers: its commands, environment and settings on a real Postgres."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import yaml

from fairsync.catalog import Catalog
from fairsync.catalog.files import save_catalog
from service.service_process import free_port, wait_until

if TYPE_CHECKING:
    from postgres_server import PostgresServer

DEPLOY = Path(__file__).parents[2] / "deploy"
GIVEN = {
    "POSTGRES_PASSWORD": "password",
    "SHOP_TOKEN": "shop-token-of-the-test",
    "CAMPAIGNS_TOKEN": "campaigns-token-of-it",
}
# Differs between a container and a process: where files are, which port is free, and that no proxy waits for the drain.
LOCAL = ("FAIRSYNC_CATALOG_PATH", "FAIRSYNC_HTTP_PORT", "FAIRSYNC_HTTP_DRAIN_SECONDS")


def dockerfile() -> dict[str, Any]:
    """Return the instructions of the last stage that say how a container runs."""
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "").split("\nFROM ")[-1].splitlines()
    return {line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1] for line in lines[1:] if line and line[0] != "#"}


def filled(value: str) -> str:
    """Return a value of compose.yaml with its variables filled in."""
    return re.sub(r"\$\{(\w+):[?-][^}]*\}", lambda found: GIVEN[found[1]], value)


def local(command: list[str], folder: Path, port: int) -> list[str]:
    """Return a command of the image as it is called here."""
    programs = {
        "/venv/bin/fairsync": [str(Path(sys.executable).with_name("fairsync"))],
        "/venv/bin/python": [sys.executable],
    }
    rest = [one.replace("/data/", f"{folder}/").replace(":8080", f":{port}") for one in command[1:]]
    return [*programs[command[0]], *rest]


def test_two_replicas_of_the_compose_file_share_postgres_and_end_cleanly(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    service, image = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["fairsync"], dockerfile()
    rng = np.random.default_rng(0)
    groups = np.repeat(["books", "toys", "wine"], 40)
    save_catalog(Catalog(rng.normal(size=(120, 8)).astype(np.float32), groups), tmp_path / "items")
    for volume in service["volumes"]:
        source, target, mode = volume.split(":")
        assert mode == "ro"
        if source != "./items":
            shutil.copy(DEPLOY / source, tmp_path / Path(target).name)
    environment = {name: filled(value) for name, value in service["environment"].items()}
    asked = urlsplit(environment["FAIRSYNC_LEDGER_URL"])
    assert (asked.scheme, asked.username, asked.hostname) == ("postgresql", "fairsync", "postgres")
    environment["FAIRSYNC_LEDGER_URL"] = postgres.schema("compose")
    variable, value = image["ENV"].split("=")
    environment[variable] = value
    command = [*json.loads(image["ENTRYPOINT"]), *json.loads(image["CMD"])]
    healthy = json.loads(image["HEALTHCHECK"].split(" CMD ")[1])
    kept = {name: one for name, one in os.environ.items() if not name.startswith("FAIRSYNC_")}
    ports, logs = [free_port(), free_port()], [tmp_path / f"log {number}" for number in range(2)]
    with ExitStack() as stack:
        processes = []
        for port, log in zip(ports, logs, strict=True):
            own = dict(zip(LOCAL, (str(tmp_path / "items"), str(port), "0.1"), strict=True))
            out = stack.enter_context(log.open("w"))
            process = subprocess.Popen(local(command, tmp_path, port), env={**kept, **environment, **own}, stderr=out)
            stack.callback(process.kill)
            processes.append(process)

        def is_healthy(number: int) -> bool:
            assert processes[number].poll() is None, logs[number].read_text()
            check = subprocess.run(local(healthy, tmp_path, ports[number]), capture_output=True, check=False)
            return check.returncode == 0

        for number in range(2):
            wait_until(lambda number=number: is_healthy(number), 120)  # type: ignore[misc]
        shop, campaigns = ({"authorization": f"Bearer {GIVEN[name]}"} for name in ("SHOP_TOKEN", "CAMPAIGNS_TOKEN"))
        clients = [stack.enter_context(httpx.Client(base_url=f"http://localhost:{port}", timeout=60)) for port in ports]
        for client in clients:
            assert client.post("/v1/retrieve", json={"vectors": [[1.0] * 8]}).status_code == 401
            answer = client.post("/v1/retrieve", json={"vectors": rng.normal(size=(5, 8)).tolist()}, headers=shop)
            assert [len(one["ids"]) for one in answer.json()["answers"]] == [20] * 5
            (books,) = client.get("/v1/promises", headers=shop).json()
            assert (books["group"], books["floor"], books["window"]["zone"]) == ("books", 10_000, "Europe/Berlin")
            assert client.delete(f"/v1/promises/{books['id']}", headers=shop).status_code == 403
        toys = {"group": "toys", "floor": 5, "window": {"every": "day"}}
        assert clients[0].post("/v1/promises", json=toys, headers=campaigns).status_code == 201
        wait_until(lambda: len(clients[1].get("/v1/promises", headers=shop).json()) == 2)
        wait_until(lambda: clients[1].get("/v1/overview", headers=shop).json()["requests"] == 10)
        assert clients[1].get("/v1/audit", headers=campaigns).json()["entries"][0]["by"] == "campaigns"
        for process, log in zip(processes, logs, strict=True):
            process.send_signal(signal.Signals[image["STOPSIGNAL"]])
            assert process.wait(60) == 0, log.read_text()
            assert "prices and promises are saved" in log.read_text()
