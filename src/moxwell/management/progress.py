"""Describes the moves of a bootstrap: the preview of ``--dry-run`` and the progress. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence

from moxwell.management.manifests import ManifestStage
from moxwell.management.objects import cluster_objects
from moxwell.management.plan import (
    BootstrapMove,
    CreateClusterObjects,
    DeleteCluster,
    DeleteMoved,
    ForgetKubeconfig,
    InstallStage,
    KeepKubeconfig,
    MoveBack,
    MoveForward,
    PatchSource,
    PatchTarget,
)
from moxwell.management.spec import NO_VIRTUAL_IP, TALOS, ManagementSpec, template_name, zone_name
from moxwell.runtime.move import Done, Wait

SENTENCES = {
    CreateClusterObjects: "creating the objects of the cluster",
    KeepKubeconfig: "the API answers",
    PatchSource: "pausing the controllers for the move",
    PatchTarget: "starting the controllers of the management cluster",
    DeleteMoved: "deleting the moved objects here",
    MoveForward: "moving the objects into the management cluster",
    MoveBack: "moving the objects back",
    ForgetKubeconfig: "the objects are back",
    DeleteCluster: "deleting the machines",
    Done: "done",
}


def sentence(move: BootstrapMove) -> str:
    """What happens now."""
    if isinstance(move, Wait):
        return move.message
    if isinstance(move, InstallStage):
        return f"installing {move.stage.name}"
    return SENTENCES[type(move)]


def preview(spec: ManagementSpec, stages: Sequence[ManifestStage]) -> Iterator[str]:
    """Everything that would be made, one line each."""
    if spec.template is not None:
        regions = ", ".join(sorted({zone.region for zone in spec.zones}))
        yield f"template {spec.name}-node from {spec.template.image} in {regions}"
    for resource, obj in cluster_objects(spec):
        yield f"object {resource.kind} {spec.namespace}/{obj['metadata']['name']}"
    size = f"{spec.cores} CPUs, {spec.memory} MiB, {spec.disk} GB"
    for number in range(spec.replicas):
        zone = spec.zones[number % len(spec.zones)]
        hosts = f" on {', '.join(zone.hosts)}" if zone.hosts else ""
        network = f"{zone.bridge}, one of {', '.join(zone.addresses)}"
        yield f"VM {number + 1} in {zone_name(zone)} ({zone.region}{hosts}): {size}, {network}"
    yield f"Kubernetes {spec.kubernetes} at {spec.endpoint}:{spec.port}, {_virtual_ip(spec)}"
    if spec.bootstrap == TALOS:
        yield f"Talos from template {template_name(spec)}; etcd begins on VM 1"
    for stage in stages:
        kinds = Counter(obj["kind"] for obj in stage.objects)
        shown = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        yield f"install {stage.name}: {shown}"
    yield "move the objects of the cluster into it"


def _virtual_ip(spec: ManagementSpec) -> str:
    if spec.virtual_ip == NO_VIRTUAL_IP:
        return "which must lead to the machines (load balancer or DNS)"
    if spec.bootstrap == TALOS:
        return "a virtual IP by Talos"
    return f"a virtual IP by {spec.virtual_ip}"
