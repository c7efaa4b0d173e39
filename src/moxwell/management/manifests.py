"""The manifests that are installed in the management cluster, in stages."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.errors import Invalid
from moxwell.kube.client import Kube
from moxwell.kube.manifests import apply_all
from moxwell.kube.reader import Reader
from moxwell.management.objects import CONFIG_MAPS

Json = dict[str, Any]
MANAGER = "moxwell-bootstrap"
RECORD, RECORD_NAMESPACE = "moxwell-bootstrap", "kube-system"
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


@dataclass(frozen=True, slots=True)
class ManifestStage:
    """The objects of one file; the next stage waits until its Deployments are available."""

    name: str
    objects: tuple[Json, ...] = field(repr=False, hash=False)

    @property
    def digest(self) -> str:
        """Identifies the content."""
        text = json.dumps(self.objects, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def deployments(self) -> list[tuple[str, str]]:
        """Namespace and name of the Deployments."""
        metas = [o["metadata"] for o in self.objects if o["kind"] == "Deployment"]
        return [(m.get("namespace", "default"), m["name"]) for m in metas]


def check_kinds(stages: Iterable[ManifestStage], kinds: Iterable[Resource]) -> None:
    """Refuse manifests without the CRDs of the objects that are moved."""
    found = {
        (o["spec"]["group"], o["spec"]["names"]["kind"])
        for stage in stages
        for o in stage.objects
        if o["kind"] == "CustomResourceDefinition"
    }
    missing = sorted({r.kind for r in kinds if r.group and (r.group, r.kind) not in found})
    if missing:
        raise Invalid(
            f"the manifests do not define {', '.join(missing)}: add those of Cluster API with its "
            "kubeadm or Talos providers and of the in-cluster IPAM provider to "
            "management_cluster.manifests"
        )


async def apply_stage(kube: Kube, stage: ManifestStage) -> None:
    """Apply all objects of a stage and record it; repeating it is harmless."""
    await apply_all(kube, stage.objects, MANAGER)
    await kube.apply(_record(stage), CONFIG_MAPS, manager=f"{MANAGER}-{stage.name}", force=True)


def _record(stage: ManifestStage) -> Json:
    meta = {"name": RECORD, "namespace": RECORD_NAMESPACE}
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    return head | {"data": {stage.name: stage.digest}}


async def next_stage(
    reader: Reader, stages: Sequence[ManifestStage]
) -> tuple[ManifestStage | None, str]:
    """The stage to apply now, or why the last applied one is not available yet; or neither."""
    record = await reader.find(CONFIG_MAPS, RECORD, RECORD_NAMESPACE) or {}
    applied = record.get("data") or {}
    for stage in stages:
        if applied.get(stage.name) != stage.digest:
            return stage, ""
        for namespace, name in stage.deployments():
            deployment = await reader.find(DEPLOYMENTS, name, namespace)
            if not is_available(deployment):
                return None, f"Deployment {namespace}/{name} of {stage.name} is not available yet"
    return None, ""


def is_available(deployment: Json | None) -> bool:
    """Whether a Deployment has at least one available pod, or zero replicas."""
    if deployment is None:
        return False
    wanted = (deployment.get("spec") or {}).get("replicas", 1)
    return not wanted or bool((deployment.get("status") or {}).get("availableReplicas"))
