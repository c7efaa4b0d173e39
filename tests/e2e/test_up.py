"""``moxwell up``, with the installed command and genuine kubectl: what is there, what survives."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moxwell.app.state_dir import is_alive
from moxwell.embedded.ports import is_free
from support.lab_inspector import LabInspector, eventually, quick_world
from support.lab_instance import COMMAND, Instance, instance, own_ports

pytestmark = [pytest.mark.slow, pytest.mark.genuine, pytest.mark.xdist_group("up")]
DEMO, SPACE = "demo", "tenant-demo"
GONE = """
apiVersion: apps.cozystack.io/v1alpha1
kind: Kubernetes
metadata: {name: gone, namespace: tenant-demo}
spec:
  regions: [frankfurt]
  nodeGroups: [{name: full, replicas: 2, instanceType: u1.medium, storage: nfs}]
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabInspector]:
    folder = tmp_path_factory.mktemp("up")
    world = quick_world(folder)
    with instance(folder, "one", "--world", str(world)) as running:
        made = LabInspector(running, world)
        assert regions(made) == {"amsterdam", "frankfurt"}  # who is scaled away later is chance
        yield made


def regions(lab: LabInspector) -> set[str]:
    """Where the machines of the sample are."""
    return {m["spec"]["region"] for m in lab.objects("proxmoxmachines", SPACE)}


def test_kubectl_sees_nodes_in_their_regions_and_pods_on_them(lab: LabInspector) -> None:
    lab.instance.run("up", "--world", str(lab.world))
    assert lab.spaces() >= {"default", SPACE}
    lab.settles(DEMO, SPACE, len(lab.objects("machines.cluster.x-k8s.io", SPACE)))
    tenant = lab.instance.folder / "demo.kubeconfig"
    lab.instance.run("cluster", "kubeconfig", DEMO, "--file", str(tenant))  # as `up` printed
    place = "topology.kubernetes.io/region"
    nodes = lab.objects("nodes", tenant=tenant)
    assert {n["metadata"]["labels"][place] for n in nodes} == regions(lab)
    assert all(n["spec"]["providerID"].startswith("proxmox://") for n in nodes)
    eventually(lambda: _are_open(lab, tenant), "pods may go everywhere")
    eventually(lambda: _have_addresses(lab, tenant), "the cloud controllers set the addresses")
    lab.kubectl("create", "deployment", "web", "--image=nginx", "--replicas=6", tenant=tenant)
    lab.kubectl("rollout", "status", "deployment/web", "--timeout=240s", tenant=tenant)
    pods = lab.objects("pods", "default", tenant=tenant)
    assert {p["status"]["phase"] for p in pods} == {"Running"}
    assert {p["spec"]["nodeName"] for p in pods} == {n["metadata"]["name"] for n in nodes}
    lab.kubectl("delete", "deployment", "web", tenant=tenant)


def test_a_cluster_is_described_followed_and_changed(lab: LabInspector) -> None:
    lab.instance.run("up", "--world", str(lab.world))
    machines = {m["metadata"]["name"] for m in lab.objects("machines.cluster.x-k8s.io", SPACE)}
    described = json.loads(lab.instance.run("cluster", "describe", DEMO, "-o", "json").stdout)
    assert {m["machine"] for m in described["machines"]} == machines
    assert [g["group"] for g in described["groups"]] == ["md0"]
    assert "v1.34.1" in lab.instance.run("cluster", "versions").stdout
    first = sorted(machines)[0]
    assert "Clone" in lab.instance.run("events", "proxmoxmachine", first, "-n", SPACE).stdout
    assert f"key={SPACE}/{first}" in lab.instance.run("logs", first).stdout
    named = ("--name", lab.instance.name)
    requested = lab.instance.run("cluster", "nodegroup", "add", DEMO, "more", "--no-wait", *named)
    assert f"status --name {lab.instance.name}`" in requested.stdout
    lab.settles(DEMO, SPACE, len(machines) + 1)
    lab.instance.run("cluster", "nodegroup", "remove", DEMO, "more")
    lab.settles(DEMO, SPACE, len(machines))


def test_the_demo_cluster_is_in_the_kubeconfig_of_the_user(lab: LabInspector) -> None:
    shown = lab.instance.run("up", "--world", str(lab.world)).stdout
    context = f"moxwell-{lab.instance.name}-demo"
    assert f"kubectl --context {context} get nodes" in shown
    get = ("--context", context, "get", "nodes", "-o", "name")
    assert lab.kubectl(*get, tenant=lab.instance.user_kubeconfig).split()


def _are_open(lab: LabInspector, tenant: Path) -> bool:
    """Taints go a moment after a node is ready."""
    return not any(n["spec"].get("taints") for n in lab.objects("nodes", tenant=tenant))


def _have_addresses(lab: LabInspector, tenant: Path) -> bool:
    """A kubelet with an external cloud provider does not report any itself."""
    rows = [n["status"].get("addresses", ()) for n in lab.objects("nodes", tenant=tenant)]
    return all("InternalIP" in {a["type"] for a in addresses} for addresses in rows)


def test_starting_twice_is_harmless(lab: LabInspector) -> None:
    lab.instance.run("up", "--world", str(lab.world))
    before = lab.instance.facts()
    again = lab.instance.run("up", "--world", str(lab.world))
    assert "running already" in again.stderr
    assert lab.instance.facts() == before


def killed_when(lab: LabInspector, moment: Callable[[], object], what: str) -> None:
    """The power goes at a moment that the estate itself shows."""
    eventually(moment, what)
    pid = lab.instance.facts()["pid"]
    lab.instance.kill()
    eventually(lambda: not lab.instance.state.is_locked(), f"process {pid} is gone")


def test_killed_while_nodes_are_made_and_again_while_they_go(lab: LabInspector) -> None:
    lab.instance.run("up", "--world", str(lab.world))
    had = len(lab.guests())
    names = {m["metadata"]["name"] for m in lab.objects("machines.cluster.x-k8s.io", SPACE)}
    lab.instance.run("cluster", "scale", DEMO, "md0", str(had + 2), "--no-wait")
    killed_when(lab, lambda: len(lab.guests()) > had, "a clone has begun")
    lab.instance.run("up", "--world", str(lab.world))
    killed_when(lab, lambda: sum(g.booted for g in lab.guests()) > had, "a new node has booted")
    lab.instance.run("up", "--world", str(lab.world))
    lab.settles(DEMO, SPACE, had + 2)
    lab.instance.run("cluster", "scale", DEMO, "md0", str(had), "--no-wait")
    killed_when(lab, lambda: len(lab.guests()) < had + 2, "a guest is gone")
    lab.instance.run("up", "--world", str(lab.world))
    lab.settles(DEMO, SPACE, had)
    now = {m["metadata"]["name"] for m in lab.objects("machines.cluster.x-k8s.io", SPACE)}
    assert len(now & names) >= 1  # nobody began anew


def test_killed_while_disks_are_copied_and_while_a_cluster_is_deleted(lab: LabInspector) -> None:
    lab.instance.run("up", "--world", str(lab.world))
    lab.kubectl("apply", "-f", "-", text=GONE)
    killed_when(lab, lambda: lab.guests("gone-"), "a disk is being copied")
    lab.instance.run("up", "--world", str(lab.world))
    lab.settles("gone", SPACE, 2)
    lab.instance.run("cluster", "delete", "gone", "--no-wait")
    killed_when(lab, lambda: len(lab.guests("gone-")) < 2, "the first guest is gone")
    lab.instance.run("up", "--world", str(lab.world))
    eventually(lambda: not lab.left("gone", SPACE), f"nothing is left: {lab.left('gone', SPACE)}")


def test_killed_while_it_starts(lab: LabInspector) -> None:
    lab.instance.run("up", "--world", str(lab.world))
    before = {g.vmid for g in lab.guests()}
    lab.instance.run("down")
    home = lab.instance.state
    port = int((home.folder / "api.port").read_text())
    facts = home.folder / "facts.json"
    for moment in (home.is_locked, lambda: not is_free(port), facts.exists):
        started = subprocess.Popen(
            [str(COMMAND), "daemon", "--name", lab.instance.name], env=lab.instance.env,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            eventually(moment, "it came so far")
        finally:
            started.send_signal(signal.SIGKILL)
            started.wait()
    lab.instance.run("up", "--world", str(lab.world))
    lab.settles(DEMO, SPACE, len(before))
    assert {g.vmid for g in lab.guests()} == before


def test_down_and_up_keep_everything(lab: LabInspector) -> None:
    lab.instance.run("up", "--world", str(lab.world))
    nodes = len(lab.objects("machines.cluster.x-k8s.io", SPACE))
    lab.settles(DEMO, SPACE, nodes)
    guests, uids = {g.vmid for g in lab.guests()}, _uids(lab)
    said = lab.instance.run("down")
    assert "stopped" in said.stdout
    assert "not running" in lab.instance.run("down").stdout
    lab.instance.run("up", "--world", str(lab.world))
    lab.settles(DEMO, SPACE, nodes)
    assert {g.vmid for g in lab.guests()} == guests
    assert _uids(lab) == uids


def _uids(lab: LabInspector) -> set[str]:
    nodes = lab.objects("nodes", tenant=lab.tenant(DEMO, SPACE))
    return {n["metadata"]["uid"] for n in nodes}


def test_two_side_by_side_and_a_purge_leaves_nothing(lab: LabInspector, tmp_path: Path) -> None:
    lab.instance.run("up", "--world", str(lab.world))
    second = Instance(lab.instance.folder, "two")
    own_ports(second.state.folder)
    try:
        second.run("up", "--no-demo", "--world", str(lab.world))
        mine, theirs = second.facts(), lab.instance.facts()
        ports = [int(f.read_text()) for f in second.state.folder.glob("*.port")]
        assert mine["api"] != theirs["api"]
        assert mine["pid"] != theirs["pid"]
        assert json.loads(second.run("get", "kuberneteses", "-o", "json").stdout)["items"] == []
    finally:
        second.run("down", "--purge", check=False)
    assert not second.state.folder.exists()
    assert not is_alive(mine["pid"])
    urls = [u for hosts in mine["regions"].values() for u in hosts]
    assert all(is_free(p) for p in (*ports, *(int(u.rsplit(":", 1)[1]) for u in urls)))
    assert lab.instance.facts() == theirs  # the other one did not notice
