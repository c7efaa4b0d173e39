"""
The chart by genuine Helm against a live lab: install, upgrade, scale, change, uninstall.

The values are those that people have: one Proxmox cluster with the hosts ``pve`` and ``labs``, a
template 100 on ``local``, credentials in a Secret. The lab has such a place beside its own regions.
"""

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.example_cluster import SECRET, TOKEN, VALUES, example_cluster
from support.lab_inspector import Json, LabInspector, eventually, quick_world
from support.lab_instance import instance

pytestmark = [pytest.mark.slow, pytest.mark.genuine, pytest.mark.xdist_group("helm")]
ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "moxwell-cluster"
SHARED = ROOT.parent / "shared" / "manifests" / "chart" / "values.yaml"
CREDENTIALS = """
apiVersion: v1
kind: Secret
metadata: {name: proxmox-secret, labels: {cluster.x-k8s.io/cluster-name: sample}}
stringData: {url: "%s", token: "%s", secret: "%s", insecure: "true"}
type: Opaque
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabInspector]:
    folder = tmp_path_factory.mktemp("helm")
    world = quick_world(folder, example_cluster())
    with instance(folder, "helm", "--no-demo", "--world", str(world)) as running:
        yield LabInspector(running, world)


class Release:
    """One release in a namespace of its own, with credentials beside it."""

    def __init__(self, lab: LabInspector, space: str, folder: Path, values: str = VALUES) -> None:
        self.lab, self.space, self.folder = lab, space, folder
        self.tree: Json = yaml.safe_load(values)
        lab.kubectl("create", "namespace", space)
        self.credentials()

    def credentials(self) -> None:
        url = self.lab.instance.facts()["regions"]["basement"][0]
        text = CREDENTIALS % (url, TOKEN, SECRET)
        self.lab.kubectl("apply", "-n", self.space, "-f", "-", text=text)

    def put(self, verb: str, **pool: Any) -> None:
        """``helm install`` or ``helm upgrade``, with a changed pool."""
        self.tree["nodePools"][0].update(pool)
        file = self.folder / "values.yaml"
        file.write_text(yaml.safe_dump(self.tree))
        self.lab.helm(verb, "my-cluster", str(CHART), "-n", self.space, "-f", str(file))

    def uninstall(self) -> None:
        self.lab.helm("uninstall", "my-cluster", "-n", self.space)

    def one(self, kind: str, name: str = "my-cluster") -> Json:
        found = [o for o in self.lab.objects(kind, self.space) if o["metadata"]["name"] == name]
        return found[0]

    def names(self, kind: str) -> set[str]:
        return {o["metadata"]["name"] for o in self.lab.objects(kind, self.space)}

    def missing_templates(self) -> set[str]:
        """Templates that a MachineSet names and nobody has."""
        there = self.names("proxmoxmachinetemplates")
        sets = self.lab.objects("machinesets.cluster.x-k8s.io", self.space)
        used = {s["spec"]["template"]["spec"]["infrastructureRef"]["name"] for s in sets}
        return used - there

    def versions(self) -> set[str]:
        tenant = self.lab.tenant("my-cluster", self.space)
        nodes = self.lab.objects("nodes", tenant=tenant)
        return {n["status"]["nodeInfo"]["kubeletVersion"] for n in nodes}

    def is_rolled(self) -> bool:
        group = self.one("machinedeployments.cluster.x-k8s.io", "my-cluster-default")
        status, wanted = group.get("status", {}), group["spec"]["replicas"]
        counts = [status.get(k, 0) for k in ("replicas", "upToDateReplicas", "readyReplicas")]
        seen = status.get("observedGeneration", 0) >= group["metadata"]["generation"]
        return seen and counts == [wanted] * 3

    def settles(self, nodes: int) -> None:
        eventually(self.is_rolled, f"{self.space} has rolled")
        self.lab.settles("my-cluster", self.space, nodes)

    def is_gone(self) -> None:
        """Nothing in Kubernetes, in Proxmox or on disk."""
        left = self.lab.left
        eventually(lambda: not left("my-cluster", self.space), f"{self.space} has left nothing")


@pytest.fixture
def release(lab: LabInspector, tmp_path: Path, request: pytest.FixtureRequest) -> Release:
    return Release(lab, f"t{zlib.crc32(request.node.name.encode())}", tmp_path)


def test_a_cluster_lives_by_helm_alone(release: Release) -> None:
    """Each step of the upstream chart's README: create, upgrade, change, scale, delete."""
    release.put("install")
    release.settles(1)
    assert release.versions() == {"v1.31.4"}
    before = release.names("proxmoxmachinetemplates")

    release.tree["cluster"]["version"] = "v1.32.2"
    release.put("upgrade", templateId=101)
    assert release.missing_templates() == set()  # also none that only the old MachineSet names
    release.settles(1)
    assert release.versions() == {"v1.32.2"}

    release.put("upgrade", replicas=2, memoryMiB=4096)
    release.settles(2)
    guests = [g for g in release.lab.guests("my-cluster-") if g.conf.get("name")]
    assert {g.conf["memory"] for g in guests} == {"4096"}
    release.put("upgrade", replicas=1)
    release.settles(1)
    assert not before & release.names("proxmoxmachinetemplates")  # nobody names it any more

    release.uninstall()
    release.is_gone()
    assert release.names("secrets") == {"proxmox-secret"}  # not ours to take


MOMENTS: dict[str, Callable[[Release], object]] = {
    "at once": lambda r: True,
    "a guest is being cloned": lambda r: r.lab.guests(),
    "a node has booted": lambda r: any(g.booted for g in r.lab.guests()),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_uninstalled_while_it_is_made(release: Release, moment: str) -> None:
    release.put("install")
    eventually(lambda: MOMENTS[moment](release), moment)
    release.uninstall()
    release.is_gone()


def test_a_namespace_deleted_with_everything_in_it_while_the_power_goes(release: Release) -> None:
    """No order at all: the credentials go first, and the daemon dies in the middle."""
    lab, url = release.lab, release.lab.instance.facts()["regions"]["basement"]
    release.put("install")
    eventually(lambda: any(g.booted for g in lab.guests()), "a node has booted")
    lab.kubectl("delete", "namespace", release.space, "--wait=false")
    lab.instance.kill()
    eventually(lambda: not lab.instance.state.is_locked(), "it is dead")
    lab.instance.run("up", "--no-demo", "--world", str(lab.world))
    assert lab.instance.facts()["regions"]["basement"] == url  # or the Secret would lead nowhere
    release.is_gone()
    eventually(lambda: release.space not in lab.spaces(), "the namespace is gone")


@pytest.mark.skipif(not SHARED.exists(), reason="the shared manifests are not here")
def test_the_values_file_of_upstream_as_it_is(lab: LabInspector, tmp_path: Path) -> None:
    release = Release(lab, "as-it-is", tmp_path, SHARED.read_text())
    release.put("install")
    release.settles(1)
    assert release.versions() == {"v1.31.4"}
    release.uninstall()
    release.is_gone()
