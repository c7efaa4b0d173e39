"""Counts what a lab contains: guests from the simulator's file, objects from kubectl."""

import base64
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import yaml

from envtest import locate
from envtest.plugin import require
from moxwell.lab.proxmox import state_file
from moxwell.lab.proxmox.state import SimGuest, SimRegion
from moxwell.lab.proxmox.world import load_world
from support.lab_instance import Instance

T = TypeVar("T")
Json = dict[str, Any]
PATIENCE = 600.0
PACE = {
    "bandwidth": "2G", "migration_bandwidth": "2G", "boot": 1, "setup": 1, "shutdown": 0.5,
    "statd": 1,
}  # fmt: skip
CLUSTER = "cluster.x-k8s.io/cluster-name"
COUNTED = (
    "machines.cluster.x-k8s.io,proxmoxmachines,"
    "ipaddresses.ipam.cluster.x-k8s.io,ipaddressclaims.ipam.cluster.x-k8s.io"
)
AWAY = (  # kubectl's words for an API that is just not there, or leaves while it is asked
    "was refused", "connection reset", "EOF", "timeout", "connection lost", "currently unable",
)  # fmt: skip


class Refused(AssertionError):
    """The API did not answer at that moment, as while a control plane is upgraded."""


def quick_world(folder: Path, *more: Json) -> Path:
    """The lab's own world and more regions, with short durations of all operations."""
    tree = yaml.safe_load((resources.files("moxwell.lab") / "lab.yaml").read_text())
    for region in more:  # the lab's own token works there too
        for key, rows in tree["regions"][0]["access"].items():
            known = region["access"].setdefault(key, [])
            known.extend(row for row in rows if row not in known)
        tree["regions"].append(region)
    for region in tree["regions"]:
        region["pace"] = PACE
    file = folder / "world.yaml"
    file.write_text(yaml.safe_dump(tree))
    return file


def eventually(question: Callable[[], T | None], what: str, seconds: float = PATIENCE) -> T:
    """Wait for the first answer that is neither empty nor false."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(Refused):
            if answer := question():
                return answer
        time.sleep(0.2)  # each question starts a program; leave time for the instance
    raise AssertionError(f"not after {seconds:.0f} s: {what}")


@dataclass(frozen=True)
class Census:
    """The number of guests and objects of one cluster, and orphaned volumes."""

    guests: int
    machines: int
    infra: int
    nodes: int
    addresses: int
    claims: int
    strays: tuple[str, ...] = ()

    @property
    def is_consistent(self) -> bool:
        """Whether there is one of each for each node, and nothing orphaned."""
        counts = {self.guests, self.machines, self.infra, self.nodes, self.addresses, self.claims}
        return len(counts) == 1 and not self.strays


@dataclass
class LabInspector:
    """Inspects the lab of an instance."""

    instance: Instance
    world: Path

    @cached_property
    def pristine(self) -> dict[str, SimRegion]:
        return load_world(self.world, 0)

    # Upstream programs

    def kubectl(self, *args: str, tenant: Path | None = None, text: str | None = None) -> str:
        return self._genuine("kubectl", args, tenant, text)

    def helm(self, *args: str) -> str:
        return self._genuine("helm", args, None, None)

    def _genuine(self, name: str, args: tuple[str, ...], at: Path | None, text: str | None) -> str:
        require(name)
        folder = self.instance.folder
        config = at or self.instance.state.kubeconfig
        env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "KUBECONFIG": str(config)}
        done = subprocess.run(
            [str(locate.program(name)), *args], env=env, input=text, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip
        if done.returncode:
            kind = Refused if any(w in done.stderr for w in AWAY) else AssertionError
            raise kind(f"{name} {' '.join(args)}: {done.stdout}{done.stderr}")
        return done.stdout

    def objects(self, kind: str, space: str = "", tenant: Path | None = None) -> list[Json]:
        where = ("-n", space) if space else ("-A",)
        found = json.loads(self.kubectl("get", kind, *where, "-o", "json", tenant=tenant))
        rows: list[Json] = found["items"]
        return rows

    def spaces(self) -> set[str]:
        return {_name(o) for o in self.objects("namespaces")}

    def tenant(self, cluster: str, space: str) -> Path:
        """The tenant's kubeconfig, from the Secret where Cluster API's tools look for it."""
        file = self.instance.folder / f"{space}-{cluster}.kubeconfig"
        words = ("get", "secret", f"{cluster}-kubeconfig", "-n", space, "-o", "json")
        secret = json.loads(self.kubectl(*words))
        file.write_bytes(base64.b64decode(secret["data"]["value"]))
        return file

    # The simulated Proxmox, as it was last saved

    def regions(self) -> dict[str, SimRegion]:
        saved = self.instance.state.simulator
        return state_file.load_file(saved) if saved.exists() else self.pristine

    def guests(self, prefix: str = "") -> list[SimGuest]:
        """Guests that are not in the world file."""
        return [
            guest
            for name, region in self.regions().items()
            for vmid, guest in region.guests.items()
            if vmid not in self.pristine[name].guests
            and str(guest.conf.get("name", prefix)).startswith(prefix)
        ]

    def strays(self) -> tuple[str, ...]:
        """Volumes and ISOs of guests that do not exist; those of the world file are not counted."""
        found = []
        for name, region in self.regions().items():
            known = {(s.name, v) for s in self.pristine[name].storages.values() for v in _names(s)}
            for storage in region.storages.values():
                for volume, vmid in _names(storage).items():
                    if (storage.name, volume) not in known and vmid not in region.guests:
                        found.append(f"{name} {storage.name}:{volume}")
        return tuple(found)

    def census(self, cluster: str, space: str) -> Census:
        """Everything of one cluster, counted; nodes by the tenant's own API."""
        nodes = self.objects("nodes", tenant=self.tenant(cluster, space))
        ready = [n for n in nodes if _is_true(n, "Ready")]
        assert len(ready) <= len(nodes)

        count = Counter(o["kind"] for o in self.objects(COUNTED, space) if _of(o, cluster))
        return Census(
            guests=len(self.guests(f"{cluster}-")),
            machines=count["Machine"],
            infra=count["ProxmoxMachine"],
            nodes=len(ready),
            addresses=count["IPAddress"],
            claims=count["IPAddressClaim"],
            strays=self.strays(),
        )

    def settles(self, cluster: str, space: str, nodes: int) -> Census:
        """Wait until there is one of each for so many nodes, and nothing orphaned."""
        last: list[Census] = []

        def look() -> Census | None:
            last[:] = [self.census(cluster, space)]
            return last[0] if last[0].is_consistent and last[0].nodes == nodes else None

        try:
            return eventually(look, f"{cluster} with {nodes} nodes")
        except AssertionError as error:
            raise AssertionError(f"{error}: {last}\n{self.instance.log()}") from error

    def left(self, cluster: str, space: str) -> list[str]:
        """What still exists of a cluster that was deleted: objects, guests, volumes, folders."""
        kinds = ",".join((
            "clusters.cluster.x-k8s.io", "machinedeployments.cluster.x-k8s.io",
            "machinesets.cluster.x-k8s.io", "machines.cluster.x-k8s.io", "proxmoxclusters",
            "proxmoxmachines", "proxmoxmachinetemplates", "kubeadmconfigs",
            "kubeadmconfigtemplates", "kamajicontrolplanes", "tenantcontrolplanes",
            "machinehealthchecks.cluster.x-k8s.io", "ipaddresses.ipam.cluster.x-k8s.io",
            "ipaddressclaims.ipam.cluster.x-k8s.io", "inclusterippools", "secrets",
            "kuberneteses.apps.cozystack.io",
        ))  # fmt: skip
        named = [f"{o['kind']} {_name(o)}" for o in self.objects(kinds, space) if _of(o, cluster)]
        guests = [f"guest {g.vmid} {g.conf.get('name', '')}" for g in self.guests(f"{cluster}-")]
        plane = self.instance.state.control_planes / space / cluster
        return [*named, *guests, *self.strays(), *([str(plane)] if plane.exists() else [])]


def _names(storage: Any) -> dict[str, int | None]:
    return {n: v.vmid for volumes in storage.volumes.values() for n, v in volumes.items()}


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def _of(obj: Json, cluster: str) -> bool:
    labels = obj["metadata"].get("labels") or {}
    name = _name(obj)
    return labels.get(CLUSTER) == cluster or name == cluster or name.startswith(f"{cluster}-")


def _is_true(obj: Json, condition: str) -> bool:
    found = obj.get("status", {}).get("conditions", [])
    return any(c["type"] == condition and c["status"] == "True" for c in found)


def is_ready(obj: Json, condition: str = "Ready") -> bool:
    """Whether a condition is true for the current generation."""
    seen = obj.get("status", {}).get("observedGeneration", 0)
    return _is_true(obj, condition) and seen >= obj["metadata"]["generation"]
