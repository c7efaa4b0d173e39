"""
Genuine clusterctl on our release: generate, init, describe, and a move between two clusters.

Two genuine management clusters, each with genuine Cluster API; one simulated Proxmox beside them.
The operator of each runs with exactly the rights that clusterctl installed for it.
"""

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from envtest import control_plane, managers
from envtest.control_plane import ControlPlane
from envtest.plugin import CAPI, KUBERNETES, require
from envtest.process import free_port
from support.clusterctl_repository import PROVIDERS, VERSION, Clusterctl
from support.operator_process import SPACE, Operator, Simulated, apply, get, story, until

pytestmark = [pytest.mark.genuine, pytest.mark.slow, pytest.mark.xdist_group("clusterctl")]
Json = dict[str, Any]
OFFER = f"moxwell:{VERSION}"
COUNTS = ("--control-plane-machine-count", "1", "--worker-machine-count", "1")
SPACED = ("--target-namespace", "default")
DEFAULT = {
    "PROXMOX_REGION": "north",
    "CONTROL_PLANE_ENDPOINT_IP": "127.40.0.1",
    "NODE_IP_RANGES": '["10.40.0.10-10.40.0.60"]',
    "GATEWAY": "10.40.0.1",
    "BOOT_VOLUME_SIZE": "20",
    "NUM_CORES": "2",
    "MEMORY_MIB": "4096",
}
REGIONS = {
    "CONTROL_PLANE_ENDPOINT_IP": "127.40.0.2",
    "PROXMOX_REGION_A": "north",
    "PROXMOX_REGION_B": "south",
    "NODE_IP_RANGES_A": '["10.41.0.10-10.41.0.60"]',
    "NODE_IP_RANGES_B": '["10.42.0.10-10.42.0.60"]',
    "GATEWAY_A": "10.41.0.1",
    "GATEWAY_B": "10.42.0.1",
}
FLAVORS = [
    pytest.param("", DEFAULT, id="one Proxmox cluster"),
    pytest.param("regions", REGIONS, id="several regions"),
    pytest.param("kamaji", DEFAULT, id="a hosted control plane"),
]


@pytest.fixture(scope="module")
def clusterctl(tmp_path_factory: pytest.TempPathFactory) -> Clusterctl:
    require("clusterctl", *(p.manager.name for p in PROVIDERS))
    return Clusterctl(tmp_path_factory.mktemp("clusterctl") / "repository")


def generated(clusterctl: Clusterctl, name: str, flavor: str, values: dict[str, str]) -> str:
    words = ["generate", "cluster", name, "--infrastructure", OFFER, *COUNTS]
    words += ["--kubernetes-version", "v1.34.1", *SPACED]
    words += ["--flavor", flavor] if flavor else []
    return clusterctl(*words, env=values).stdout


def test_the_provider_is_generated_whole(clusterctl: Clusterctl) -> None:
    config = base64.b64encode(b"clusters: []\n").decode()
    done = clusterctl(
        "generate", "provider", "--infrastructure", OFFER, env={"MOXWELL_CONFIG_B64": config}
    )
    found = [d for d in yaml.safe_load_all(done.stdout) if d]
    kinds = [d["kind"] for d in found]
    assert kinds.count("CustomResourceDefinition") == 4
    assert {"Namespace", "Deployment", "ClusterRole", "ValidatingWebhookConfiguration"} <= set(
        kinds
    )
    (secret,) = [d for d in found if d["kind"] == "Secret"]
    assert secret["data"]["config.yaml"] == config
    assert "${" not in done.stdout


def test_what_must_be_given_is_named(clusterctl: Clusterctl) -> None:
    done = clusterctl("generate", "provider", "--infrastructure", OFFER, check=False)
    assert done.returncode != 0
    assert "[MOXWELL_CONFIG_B64]" in done.stderr


@pytest.mark.parametrize("flavor, values", FLAVORS)
def test_every_template_is_generated_with_its_documented_variables(
    clusterctl: Clusterctl, flavor: str, values: dict[str, str]
) -> None:
    found = [d for d in yaml.safe_load_all(generated(clusterctl, "demo", flavor, values)) if d]
    assert {d["kind"] for d in found} >= {"Cluster", "ProxmoxCluster", "MachineDeployment"}
    listed = ["generate", "cluster", "demo", "--infrastructure", OFFER, "--list-variables", *SPACED]
    output = clusterctl(*listed, *(["--flavor", flavor] if flavor else [])).stdout
    required = output.partition("Required Variables:")[2].partition("Optional")[0]
    asked = {line.strip(" -") for line in required.splitlines() if line.strip()}
    assert asked - {"KUBERNETES_VERSION"} <= set(values)


@dataclass
class Management:
    """A management cluster that clusterctl made."""

    plane: ControlPlane
    operator: Operator

    def machines(self) -> list[Json]:
        return get(self.plane, "machines")

    def tell(self) -> str:
        return story(self.plane) + "\n" + self.operator.log[-2000:]

    def until_nodes(self, count: int) -> list[Json]:
        def ask() -> list[Json]:
            found = [m for m in self.machines() if m.get("status", {}).get("nodeRef")]
            return found if len(found) == count == len(self.machines()) else []

        made: list[Json] = until(f"{count} machines with nodes", ask, self.tell)
        return made


def manage(folder: Path, clusterctl: Clusterctl, proxmox: Simulated) -> Management:
    plane = ControlPlane(folder)
    plane.start()
    plane.start_controller_manager()
    control_plane.wait_default_account(plane)
    config = folder / "config.yaml"
    config.write_text(proxmox.config())
    given = base64.b64encode(config.read_bytes()).decode()
    offers = ("--infrastructure", OFFER, "--ipam", "in-cluster")
    env = {"MOXWELL_CONFIG_B64": given}
    clusterctl("init", "--kubeconfig", plane.kubeconfig, *offers, env=env)
    managers.start(plane, *managers.ALL, managers.CONTROL_PLANE)
    operator = Operator(plane, config)
    operator.point()
    operator.start()
    return Management(plane, operator)


@pytest.fixture(scope="module")
def proxmox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    require(*KUBERNETES, *CAPI, managers.CONTROL_PLANE.name)
    with Simulated(tmp_path_factory.mktemp("proxmox")) as made:
        yield made


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory, clusterctl: Clusterctl, proxmox: Simulated
) -> Iterator[tuple[Management, Management]]:
    """Two management clusters, started at once."""
    folders = [tmp_path_factory.mktemp(name) for name in ("home", "away")]
    with ThreadPoolExecutor(2) as pool:  # its threads stay: a child ends with the one it is from
        asked = [pool.submit(manage, folder, clusterctl, proxmox) for folder in folders]
        wait(asked)
        try:
            yield asked[0].result(), asked[1].result()
        finally:
            for one in asked:
                if one.exception() is None:
                    one.result().plane.stop()


def snapshot(proxmox: Simulated) -> dict[str, Json]:
    """Our guests as they are, and when each was started."""
    return {
        f"{name}/{vmid}": {"conf": dict(guest.conf), "since": guest.started}
        for name, vmids in proxmox.ours().items()
        for vmid in vmids
        if (guest := proxmox.regions[name].guests[vmid])
    }


def test_clusters_are_made_described_and_moved(
    clusterctl: Clusterctl, proxmox: Simulated, both: tuple[Management, Management]
) -> None:
    home, away = both
    for name, flavor, values in (("demo", "", DEFAULT), ("wide", "regions", REGIONS)):
        text = generated(clusterctl, name, flavor, values).replace("6443", str(free_port()))
        apply(home.plane, text)
    home.until_nodes(4)
    assert all(proxmox.ours().values())  # the wide one has machines in both regions
    until("the seeds are gone", lambda: not _busy(home), home.tell)
    output = clusterctl("describe", "cluster", "demo", "--kubeconfig", home.plane.kubeconfig).stdout
    assert "ProxmoxCluster/demo" in output
    assert "MachineDeployment/demo-workers" in output
    before, objects = snapshot(proxmox), _identities(home)
    assert len(before) == 4

    target = ("--to-kubeconfig", away.plane.kubeconfig)
    clusterctl("move", "--kubeconfig", home.plane.kubeconfig, *target)

    assert get(home.plane, "proxmoxmachines") == []
    assert get(home.plane, "clusters") == []
    away.until_nodes(4)
    until("the moved machines are ready", lambda: not _busy(away), away.tell)
    assert _identities(away) == objects
    assert snapshot(proxmox) == before
    away.plane.kubectl("scale", "machinedeployment", "demo-workers", "--replicas=2")
    away.until_nodes(5)
    assert len(snapshot(proxmox)) == 5
    for management in (home, away):
        assert "Forbidden" not in management.operator.log
        assert "forbidden" not in management.operator.log


def _busy(management: Management) -> bool:
    found = [m.get("status", {}) for m in get(management.plane, "proxmoxmachines")]
    ready = [c["status"] for m in found for c in m.get("conditions", ()) if c["type"] == "Ready"]
    moving = any(m.get("nextMove") for m in found)
    return moving or len(ready) != len(found) or set(ready) != {"True"}


def _identities(management: Management) -> dict[str, tuple[str, int]]:
    found = get(management.plane, "proxmoxmachines")
    return {
        m["metadata"]["name"]: (m["spec"]["providerID"], m["spec"]["virtualMachineID"])
        for m in found
    }


def test_nothing_of_the_configuration_is_readable_where_it_should_not_be(
    both: tuple[Management, Management],
) -> None:
    home, _ = both
    account = f"system:serviceaccount:{SPACE}:moxwell-controller-manager"
    done = home.plane.kubectl(
        "auth", "can-i", "list", "secrets", "-A", "--as", account, check=False
    )
    assert done.stdout.strip() == "no"
    done = home.plane.kubectl("auth", "can-i", "--list", "--as", account, "-o", "json", check=False)
    assert json.dumps("*") not in done.stdout
