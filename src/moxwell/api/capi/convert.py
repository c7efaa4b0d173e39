"""
Cluster API v1beta1 to v1beta2 and back, as tables of moves.

v1beta2 is the hub. Objects are plain JSON here, since we know only some of their fields and must
keep all. A v1beta2 reference names no version; the v1beta1 one made from it names the newest one of
its kind, unless the object once was v1beta1 and its own text is known.
"""

from collections.abc import Callable, Sequence
from typing import Any

from moxwell.api.capi import shared
from moxwell.api.conversion import Family, Spoke
from moxwell.api.conversion_tables import Move, Moves, Tree, duration, seconds, within

OLD, HUB = "v1beta1", "v1beta2"


def ref_up(ref: Tree) -> Tree:
    """``apiVersion`` becomes ``apiGroup``; the namespace is that of the object anyway."""
    group = str(ref.get("apiVersion", "")).rpartition("/")[0]
    return {"apiGroup": group, "kind": ref.get("kind", ""), "name": ref.get("name", "")}


def ref_down(ref: Tree) -> Tree:
    """``apiGroup`` becomes an ``apiVersion``: the newest of its kind, as upstream chooses."""
    kind = str(ref.get("kind", ""))
    version = "v1alpha2" if kind.startswith("Kamaji") else HUB
    return {
        "apiVersion": f"{ref.get('apiGroup', '')}/{version}",
        "kind": kind,
        "name": ref.get("name", ""),
    }


def domains_up(domains: Any) -> Any:
    """A map by name becomes a list."""
    if not isinstance(domains, dict):
        return domains
    return [{"name": name, **domains[name]} for name in sorted(domains)]


def domains_down(domains: Any) -> Any:
    """A list becomes a map by name."""
    return {d["name"]: {k: v for k, v in d.items() if k != "name"} for d in domains}


def node_up(ref: Tree) -> Tree:
    return {"name": ref.get("name", "")}


def node_down(ref: Tree) -> Tree:
    return {"apiVersion": "v1", "kind": "Node", "name": ref.get("name", "")}


def args_up(args: Any) -> Any:
    """Flags as a map become a list, so that one may be given twice."""
    if not isinstance(args, dict):
        return args
    return [{"name": name, "value": args[name]} for name in sorted(args)]


def args_down(args: Any) -> Any:
    return {arg["name"]: arg.get("value", "") for arg in args}


def _each(turn: Callable[[Tree], Tree]) -> Callable[[Any], Any]:
    return lambda items: [turn(item) for item in items]


def _check_up(condition: Tree) -> Tree:
    rest = {k: v for k, v in condition.items() if k != "timeout"}
    return rest | {"timeoutSeconds": seconds(condition.get("timeout", "0"))}


def _check_down(condition: Tree) -> Tree:
    rest = {k: v for k, v in condition.items() if k != "timeoutSeconds"}
    return rest | {"timeout": duration(condition.get("timeoutSeconds", 0))}


def _time(old: str, new: str) -> Move:
    return Move(old, new, seconds, duration)


CONDITIONS = (
    Move("status.conditions", "status.deprecated.v1beta1.conditions"),
    Move("status.v1beta2.conditions", "status.conditions"),
    Move("status.failureReason", "status.deprecated.v1beta1.failureReason"),
    Move("status.failureMessage", "status.deprecated.v1beta1.failureMessage"),
)
MACHINE = (
    Move("bootstrap.configRef", "bootstrap.configRef", ref_up, ref_down),
    Move("infrastructureRef", "infrastructureRef", ref_up, ref_down),
    _time("nodeDrainTimeout", "deletion.nodeDrainTimeoutSeconds"),
    _time("nodeVolumeDetachTimeout", "deletion.nodeVolumeDetachTimeoutSeconds"),
    _time("nodeDeletionTimeout", "deletion.nodeDeletionTimeoutSeconds"),
)
FLEET = (
    *within("spec.template.spec", MACHINE),
    Move("spec.machineNamingStrategy", "spec.machineNaming"),
    Move("spec.minReadySeconds", "spec.template.spec.minReadySeconds"),
    Move("status.updatedReplicas", "status.upToDateReplicas"),
    *CONDITIONS,
)
TABLES: dict[str, Sequence[Move]] = {
    "Cluster": (
        Move("spec.controlPlaneRef", "spec.controlPlaneRef", ref_up, ref_down),
        Move("spec.infrastructureRef", "spec.infrastructureRef", ref_up, ref_down),
        Move("status.infrastructureReady", "status.initialization.infrastructureProvisioned"),
        Move("status.controlPlaneReady", "status.initialization.controlPlaneInitialized"),
        Move("status.failureDomains", "status.failureDomains", domains_up, domains_down),
        *CONDITIONS,
    ),
    "Machine": (
        *within("spec", MACHINE),
        Move("status.infrastructureReady", "status.initialization.infrastructureProvisioned"),
        Move("status.bootstrapReady", "status.initialization.bootstrapDataSecretCreated"),
        Move("status.nodeRef", "status.nodeRef", node_up, node_down),
        *CONDITIONS,
    ),
    "MachineSet": (Move("spec.deletePolicy", "spec.deletion.order"), *FLEET),
    "MachineDeployment": (
        Move("spec.rolloutAfter", "spec.rollout.after"),
        Move("spec.strategy.remediation", "spec.remediation"),
        Move("spec.strategy.rollingUpdate.deletePolicy", "spec.deletion.order"),
        Move("spec.strategy", "spec.rollout.strategy"),
        *FLEET,
    ),
    "MachineHealthCheck": (
        Move(
            "spec.unhealthyConditions",
            "spec.checks.unhealthyNodeConditions",
            _each(_check_up),
            _each(_check_down),
        ),
        _time("spec.nodeStartupTimeout", "spec.checks.nodeStartupTimeoutSeconds"),
        Move("spec.maxUnhealthy", "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo"),
        Move("spec.unhealthyRange", "spec.remediation.triggerIf.unhealthyInRange"),
        Move("spec.remediationTemplate", "spec.remediation.templateRef"),
        *CONDITIONS,
    ),
}
KUBEADM = (
    Move(
        "initConfiguration.nodeRegistration.kubeletExtraArgs",
        "initConfiguration.nodeRegistration.kubeletExtraArgs",
        args_up,
        args_down,
    ),
    Move(
        "joinConfiguration.nodeRegistration.kubeletExtraArgs",
        "joinConfiguration.nodeRegistration.kubeletExtraArgs",
        args_up,
        args_down,
    ),
    *(
        Move(
            f"clusterConfiguration.{part}.extraArgs",
            f"clusterConfiguration.{part}.extraArgs",
            args_up,
            args_down,
        )
        for part in ("apiServer", "controllerManager", "scheduler", "etcd.local")
    ),
)
KUBEADM_TABLES: dict[str, Sequence[Move]] = {
    "KubeadmConfig": (
        *within("spec", KUBEADM),
        Move("status.ready", "status.initialization.dataSecretCreated"),
        *CONDITIONS,
    ),
    "KubeadmConfigTemplate": within("spec.template.spec", KUBEADM),
}
PLANE_TABLES: dict[str, Sequence[Move]] = {
    "KubeadmControlPlane": (
        *within("spec.kubeadmConfigSpec", KUBEADM),
        Move(
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
        Move("spec.rolloutAfter", "spec.rollout.after"),
        Move("spec.rolloutStrategy", "spec.rollout.strategy"),
        Move("status.initialized", "status.initialization.controlPlaneInitialized"),
        Move("status.updatedReplicas", "status.upToDateReplicas"),
        *CONDITIONS,
    ),
}


def _family(group: str, kind: str, rows: Sequence[Move]) -> Family:
    moves = Moves(rows)
    spoke = Spoke(version=OLD, up=moves.up, down=moves.down)
    return Family(group=group, kind=kind, hub=HUB, spokes=(spoke,))


FAMILIES: tuple[Family, ...] = (
    *(_family(shared.GROUP, kind, rows) for kind, rows in TABLES.items()),
    *(_family(shared.BOOTSTRAP, kind, rows) for kind, rows in KUBEADM_TABLES.items()),
    *(_family(shared.CONTROL_PLANE, kind, rows) for kind, rows in PLANE_TABLES.items()),
)
