"""The manifests of deploy/ are valid, agree with each other, and name settings that exist."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairsync.service.settings import Settings, load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"


def manifests() -> dict[str, dict[str, Any]]:
    found = yaml.safe_load_all((DEPLOY / "kubernetes" / "fairsync.yaml").read_text())
    return {one["kind"]: one for one in found}


def container() -> dict[str, Any]:
    (found,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def settings_of(text: str, folder: Path) -> Settings:
    path = folder / "service.toml"
    path.write_text(text)
    return load_settings(path, {})


@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_kubernetes_accepts_the_manifests(version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    assert set(manifests()) == {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "PersistentVolumeClaim"}
    for manifest in manifests().values():
        validator.validate(manifest, version, strict=True)
    broken = {**manifests()["Service"], "spec": {"ports": [{"port": "eighty"}]}}
    with pytest.raises(validator.ValidationError):
        validator.validate(broken, version, strict=True)


def test_selectors_ports_volumes_and_secrets_agree() -> None:
    found = manifests()
    deployment, pod = found["Deployment"]["spec"], found["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert deployment["replicas"] > found["PodDisruptionBudget"]["spec"]["maxUnavailable"]
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert found["Service"]["spec"]["ports"][0]["targetPort"] in ports
    probes = {name: container()[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/health", "liveness": "/health", "readiness": "/ready",
    }  # fmt: skip
    assert {probe["port"] for probe in probes.values()} <= set(ports)
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in container()["volumeMounts"]} == volumes
    assert (
        pod["spec"]["volumes"][1]["persistentVolumeClaim"]["claimName"]
        == (found["PersistentVolumeClaim"]["metadata"]["name"])
    )


def test_the_settings_in_the_manifests_are_settings(tmp_path: Path) -> None:
    kubernetes = settings_of(manifests()["ConfigMap"]["data"]["service.toml"], tmp_path)
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    assert kubernetes.http.port == container()["ports"][0]["containerPort"]
    assert pod["terminationGracePeriodSeconds"] > kubernetes.http.drain_seconds + kubernetes.http.shutdown_seconds
    given = {variable["name"] for variable in container()["env"]}
    assert given == {"FAIRSYNC_LEDGER_URL", *(str(token.env) for token in kubernetes.tokens)}
    compose = settings_of((DEPLOY / "compose.toml").read_text(), tmp_path)
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["fairsync"]
    assert set(service["environment"]) == {"FAIRSYNC_LEDGER_URL", *(str(token.env) for token in compose.tokens)}
    assert int(service["stop_grace_period"].removesuffix("s")) > (
        compose.http.drain_seconds + compose.http.shutdown_seconds
    )


def test_the_compose_file_is_complete() -> None:
    """Docker may not be here: files that it mounts exist, volumes are declared, and no secret is in it."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    assert set(compose) == {"services", "volumes"}
    known = {
        "image", "build", "restart", "environment", "volumes", "healthcheck", "depends_on", "read_only", "tmpfs",
        "cap_drop", "security_opt", "stop_grace_period", "ports",
    }  # fmt: skip
    for service in services.values():
        assert set(service) <= known
        assert ("image" in service) != ("build" in service)
        assert set(service.get("depends_on", [])) <= set(services)
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert source == "./items" or (DEPLOY / source).is_file(), source
            else:
                assert source in compose["volumes"]
    secrets = {"POSTGRES_PASSWORD", "SHOP_TOKEN", "CAMPAIGNS_TOKEN"}
    text = (DEPLOY / "compose.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+):\?set it\}", text)) == secrets
    assert services["postgres"]["healthcheck"]["test"][0] == "CMD-SHELL"
    build = services["fairsync"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_the_systemd_unit_is_hardened() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((DEPLOY / "fairsync.service").read_text())
    service = dict(unit["Service"])
    for key in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictNamespaces"):
        assert service[key] == "yes", key
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["User"] == "fairsync"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_little_that_an_attacker_could_use() -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(DEPLOY / "fairsync.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    level = re.search(r"exposure level for fairsync.service: ([\d.]+)", done.stdout)
    assert level is not None
    assert float(level[1]) <= 2.0
