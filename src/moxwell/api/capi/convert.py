"""
Conversion of Cluster API kinds between v1beta1 and v1beta2 (the hub), as tables of field moves.

Objects are plain JSON here, so that fields without a Struct are kept. A v1beta2 reference has no
version; the v1beta1 reference converted from it names the newest version of the kind, unless the
object was v1beta1 before and the original is known.
"""

from collections.abc import Callable, Sequence
from typing import Any

from moxwell.api.capi import shared
from moxwell.api.capi.addons import ADDONS
from moxwell.api.conversion import KindConversion, Spoke
from moxwell.api.conversion_tables import (
    ConversionTable,
    FieldMove,
    JsonObject,
    below,
    duration,
    seconds,
)

OLD, HUB = "v1beta1", "v1beta2"


def ref_up(ref: JsonObject) -> JsonObject:
    """
    Replace ``apiVersion`` with ``apiGroup`` and drop the namespace, which is always the object's
    own.
    """
    group = str(ref.get("apiVersion", "")).rpartition("/")[0]
    return {"apiGroup": group, "kind": ref.get("kind", ""), "name": ref.get("name", "")}


def ref_down(ref: JsonObject) -> JsonObject:
    """
    Replace ``apiGroup`` with an ``apiVersion``: the newest version of the kind, as upstream does.
    """
    kind = str(ref.get("kind", ""))
    version = "v1alpha2" if kind.startswith("Kamaji") else HUB
    return {
        "apiVersion": f"{ref.get('apiGroup', '')}/{version}",
        "kind": kind,
        "name": ref.get("name", ""),
    }


def domains_up(domains: Any) -> Any:
    """Convert the map of failure domains to a list."""
    if not isinstance(domains, dict):
        return domains
    return [{"name": name, **domains[name]} for name in sorted(domains)]


def domains_down(domains: Any) -> Any:
    """Convert the list of failure domains to a map by name."""
    return {d["name"]: {k: v for k, v in d.items() if k != "name"} for d in domains}


def node_up(ref: JsonObject) -> JsonObject:
    return {"name": ref.get("name", "")}


def node_down(ref: JsonObject) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Node", "name": ref.get("name", "")}


def args_up(args: Any) -> Any:
    """Convert a map of flags to a list, which allows a flag to repeat."""
    if not isinstance(args, dict):
        return args
    return [{"name": name, "value": args[name]} for name in sorted(args)]


def args_down(args: Any) -> Any:
    return {arg["name"]: arg.get("value", "") for arg in args}


def _each(convert: Callable[[JsonObject], JsonObject]) -> Callable[[Any], Any]:
    return lambda items: [convert(item) for item in items]


def _check_up(condition: JsonObject) -> JsonObject:
    rest = {k: v for k, v in condition.items() if k != "timeout"}
    return rest | {"timeoutSeconds": seconds(condition.get("timeout", "0"))}


def _check_down(condition: JsonObject) -> JsonObject:
    rest = {k: v for k, v in condition.items() if k != "timeoutSeconds"}
    return rest | {"timeout": duration(condition.get("timeoutSeconds", 0))}


def _time(old: str, new: str) -> FieldMove:
    return FieldMove(old, new, seconds, duration)


CONDITION_MOVES = (
    FieldMove("status.conditions", "status.deprecated.v1beta1.conditions"),
    FieldMove("status.v1beta2.conditions", "status.conditions"),
    FieldMove("status.failureReason", "status.deprecated.v1beta1.failureReason"),
    FieldMove("status.failureMessage", "status.deprecated.v1beta1.failureMessage"),
)
MACHINE_MOVES = (
    FieldMove("bootstrap.configRef", "bootstrap.configRef", ref_up, ref_down),
    FieldMove("infrastructureRef", "infrastructureRef", ref_up, ref_down),
    _time("nodeDrainTimeout", "deletion.nodeDrainTimeoutSeconds"),
    _time("nodeVolumeDetachTimeout", "deletion.nodeVolumeDetachTimeoutSeconds"),
    _time("nodeDeletionTimeout", "deletion.nodeDeletionTimeoutSeconds"),
)
MACHINE_SET_MOVES = (
    *below("spec.template.spec", MACHINE_MOVES),
    FieldMove("spec.machineNamingStrategy", "spec.machineNaming"),
    FieldMove("spec.minReadySeconds", "spec.template.spec.minReadySeconds"),
    FieldMove("status.updatedReplicas", "status.upToDateReplicas"),
    *CONDITION_MOVES,
)
CORE_TABLES: dict[str, Sequence[FieldMove]] = {
    "Cluster": (
        FieldMove("spec.controlPlaneRef", "spec.controlPlaneRef", ref_up, ref_down),
        FieldMove("spec.infrastructureRef", "spec.infrastructureRef", ref_up, ref_down),
        FieldMove("status.infrastructureReady", "status.initialization.infrastructureProvisioned"),
        FieldMove("status.controlPlaneReady", "status.initialization.controlPlaneInitialized"),
        FieldMove("status.failureDomains", "status.failureDomains", domains_up, domains_down),
        *CONDITION_MOVES,
    ),
    "Machine": (
        *below("spec", MACHINE_MOVES),
        FieldMove("status.infrastructureReady", "status.initialization.infrastructureProvisioned"),
        FieldMove("status.bootstrapReady", "status.initialization.bootstrapDataSecretCreated"),
        FieldMove("status.nodeRef", "status.nodeRef", node_up, node_down),
        *CONDITION_MOVES,
    ),
    "MachineSet": (FieldMove("spec.deletePolicy", "spec.deletion.order"), *MACHINE_SET_MOVES),
    "MachineDeployment": (
        FieldMove("spec.rolloutAfter", "spec.rollout.after"),
        FieldMove("spec.strategy.remediation", "spec.remediation"),
        FieldMove("spec.strategy.rollingUpdate.deletePolicy", "spec.deletion.order"),
        FieldMove("spec.strategy", "spec.rollout.strategy"),
        *MACHINE_SET_MOVES,
    ),
    "MachineHealthCheck": (
        FieldMove(
            "spec.unhealthyConditions",
            "spec.checks.unhealthyNodeConditions",
            _each(_check_up),
            _each(_check_down),
        ),
        _time("spec.nodeStartupTimeout", "spec.checks.nodeStartupTimeoutSeconds"),
        FieldMove("spec.maxUnhealthy", "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo"),
        FieldMove("spec.unhealthyRange", "spec.remediation.triggerIf.unhealthyInRange"),
        FieldMove("spec.remediationTemplate", "spec.remediation.templateRef"),
        *CONDITION_MOVES,
    ),
}
KUBEADM_MOVES = (
    FieldMove(
        "initConfiguration.nodeRegistration.kubeletExtraArgs",
        "initConfiguration.nodeRegistration.kubeletExtraArgs",
        args_up,
        args_down,
    ),
    FieldMove(
        "joinConfiguration.nodeRegistration.kubeletExtraArgs",
        "joinConfiguration.nodeRegistration.kubeletExtraArgs",
        args_up,
        args_down,
    ),
    *(
        FieldMove(
            f"clusterConfiguration.{part}.extraArgs",
            f"clusterConfiguration.{part}.extraArgs",
            args_up,
            args_down,
        )
        for part in ("apiServer", "controllerManager", "scheduler", "etcd.local")
    ),
)
KUBEADM_TABLES: dict[str, Sequence[FieldMove]] = {
    "KubeadmConfig": (
        *below("spec", KUBEADM_MOVES),
        FieldMove("status.ready", "status.initialization.dataSecretCreated"),
        *CONDITION_MOVES,
    ),
    "KubeadmConfigTemplate": below("spec.template.spec", KUBEADM_MOVES),
}
CONTROL_PLANE_TABLES: dict[str, Sequence[FieldMove]] = {
    "KubeadmControlPlane": (
        *below("spec.kubeadmConfigSpec", KUBEADM_MOVES),
        FieldMove(
            "spec.machineTemplate.infrastructureRef",
            "spec.machineTemplate.spec.infrastructureRef",
            ref_up,
            ref_down,
        ),
        _time(
            "spec.machineTemplate.nodeDrainTimeout",
            "spec.machineTemplate.spec.deletion.nodeDrainTimeoutSeconds",
        ),
        _time(
            "spec.machineTemplate.nodeVolumeDetachTimeout",
            "spec.machineTemplate.spec.deletion.nodeVolumeDetachTimeoutSeconds",
        ),
        _time(
            "spec.machineTemplate.nodeDeletionTimeout",
            "spec.machineTemplate.spec.deletion.nodeDeletionTimeoutSeconds",
        ),
        FieldMove("spec.rolloutAfter", "spec.rollout.after"),
        FieldMove("spec.rolloutStrategy", "spec.rollout.strategy"),
        FieldMove("status.initialized", "status.initialization.controlPlaneInitialized"),
        FieldMove("status.updatedReplicas", "status.upToDateReplicas"),
        *CONDITION_MOVES,
    ),
}


def _family(group: str, kind: str, rows: Sequence[FieldMove]) -> KindConversion:
    table = ConversionTable(rows)
    spoke = Spoke(version=OLD, to_hub=table.to_hub, from_hub=table.from_hub)
    return KindConversion(group=group, kind=kind, hub=HUB, spokes=(spoke,))


ADDON_TABLES: dict[str, Sequence[FieldMove]] = {
    "ClusterResourceSet": CONDITION_MOVES,
    "ClusterResourceSetBinding": (),
}


CONVERSIONS: tuple[KindConversion, ...] = (
    *(_family(shared.GROUP, kind, rows) for kind, rows in CORE_TABLES.items()),
    *(_family(shared.BOOTSTRAP, kind, rows) for kind, rows in KUBEADM_TABLES.items()),
    *(_family(shared.CONTROL_PLANE, kind, rows) for kind, rows in CONTROL_PLANE_TABLES.items()),
    *(_family(ADDONS, kind, rows) for kind, rows in ADDON_TABLES.items()),
)
