"""
Printer columns of built-in kinds, as in kube-apiserver.

The name is the first column by default; kinds without an entry have name and age.
"""

from collections.abc import Callable, Mapping
from typing import Any

from moxwell.embedded.apiserver.builtin import printers as c
from moxwell.embedded.apiserver.resources import TableColumn

Object = dict[str, Any]
Cell = Callable[[Object], Any]
AGE = TableColumn("Age", path=".metadata.creationTimestamp", age=True)


def _text(name: str, cell: Cell, wide: int = 0) -> TableColumn:
    return TableColumn(name, cell=cell, priority=wide)


def _number(name: str, cell: Cell) -> TableColumn:
    return TableColumn(name, "integer", cell=cell)


def _flag(name: str, *path: str) -> TableColumn:
    return TableColumn(name, "boolean", cell=lambda obj: bool(c.at(obj, *path)))


def _template(selector: bool = True) -> tuple[TableColumn, ...]:
    pod = ("spec", "template", "spec")
    found = (
        _text("Containers", c.containers(*pod, field="name"), 1),
        _text("Images", c.containers(*pod, field="image"), 1),
    )
    return (*found, _text("Selector", c.selector("spec", "selector"), 1)) if selector else found


def _replicas() -> tuple[TableColumn, ...]:
    return (
        _number("Desired", c.count("spec", "replicas")),
        _number("Current", c.count("status", "replicas")),
        _number("Ready", c.count("status", "readyReplicas")),
        AGE,
        *_template(),
    )


def _binding() -> tuple[TableColumn, ...]:
    kinds = (("Users", "User"), ("Groups", "Group"), ("ServiceAccounts", "ServiceAccount"))
    return (_text("Role", c.role), AGE, *(_text(name, c.subjects(kind), 1) for name, kind in kinds))


EVENT = (
    TableColumn("Last Seen", path=".lastTimestamp", age=True),
    _text("Type", c.text("type")),
    _text("Reason", c.text("reason")),
    _text("Object", c.event_object),
    _text("Subobject", lambda e: c.at(e, "involvedObject", "fieldPath") or "", 1),
    _text("Source", c.event_source, 1),
    _text("Message", lambda e: str(e.get("message") or e.get("note") or "").strip()),
    TableColumn("First Seen", path=".firstTimestamp", age=True, priority=1),
    _text("Count", lambda e: str(e.get("count") or e.get("deprecatedCount") or 1), 1),
    TableColumn("Name", format="name", priority=1, cell=lambda e: e["metadata"]["name"]),
)
_POD = ("spec", "jobTemplate", "spec", "template", "spec")
_TEMPLATE = ("spec", "template", "spec")
_INFO = ("status", "nodeInfo")

COLUMNS: Mapping[str, tuple[TableColumn, ...]] = {
    "ConfigMap": (_text("Data", c.data), AGE),
    "Secret": (_text("Type", c.text("type")), _text("Data", c.data), AGE),
    "ServiceAccount": (AGE,),
    "Namespace": (_text("Status", c.text("status", "phase")), AGE),
    "Event": EVENT,
    "Endpoints": (_text("Endpoints", c.endpoints), AGE),
    "EndpointSlice": (
        _text("AddressType", c.text("addressType")),
        _text("Ports", c.slice_ports),
        _text("Endpoints", c.slice_endpoints),
        AGE,
    ),
    "Lease": (_text("Holder", c.text("spec", "holderIdentity")), AGE),
    "Node": (
        _text("Status", c.node_status),
        _text("Roles", c.node_roles),
        AGE,
        _text("Version", c.text(*_INFO, "kubeletVersion")),
        _text("Internal-IP", c.node_address("InternalIP"), 1),
        _text("External-IP", c.node_address("ExternalIP"), 1),
        _text("OS-Image", c.or_unknown(*_INFO, "osImage"), 1),
        _text("Kernel-Version", c.or_unknown(*_INFO, "kernelVersion"), 1),
        _text("Container-Runtime", c.or_unknown(*_INFO, "containerRuntimeVersion"), 1),
    ),
    "Pod": (
        _text("Ready", c.pod_ready),
        _text("Status", c.pod_status),
        _text("Restarts", c.restarts),
        AGE,
        _text("IP", c.or_none("status", "podIP"), 1),
        _text("Node", c.or_none("spec", "nodeName"), 1),
        _text("Nominated Node", c.or_none("status", "nominatedNodeName"), 1),
        _text("Readiness Gates", c.gates, 1),
    ),
    "PodTemplate": (
        _text("Containers", c.containers("template", "spec", field="name")),
        _text("Images", c.containers("template", "spec", field="image")),
        _text("Pod Labels", lambda o: c.labels(c.at(o, "template", "metadata", "labels"))),
    ),
    "Service": (
        _text("Type", c.text("spec", "type")),
        _text("Cluster-IP", c.or_none("spec", "clusterIP")),
        _text("External-IP", c.external),
        _text("Port(s)", c.ports),
        AGE,
        _text("Selector", lambda o: c.labels(c.at(o, "spec", "selector")), 1),
    ),
    "PersistentVolumeClaim": (
        _text("Status", c.phase),
        _text("Volume", c.text("spec", "volumeName")),
        _text("Capacity", c.text("status", "capacity", "storage")),
        _text("Access Modes", lambda o: c.modes(c.at(o, "status", "accessModes"))),
        _text("StorageClass", c.text("spec", "storageClassName")),
        _text("VolumeAttributesClass", c.unset("spec", "volumeAttributesClassName")),
        AGE,
        _text("VolumeMode", c.unset("spec", "volumeMode"), 1),
    ),
    "PersistentVolume": (
        _text("Capacity", c.text("spec", "capacity", "storage")),
        _text("Access Modes", lambda o: c.modes(c.at(o, "spec", "accessModes"))),
        _text("Reclaim Policy", c.text("spec", "persistentVolumeReclaimPolicy")),
        _text("Status", c.phase),
        _text("Claim", c.claim_of),
        _text("StorageClass", c.text("spec", "storageClassName")),
        _text("VolumeAttributesClass", c.unset("spec", "volumeAttributesClassName")),
        _text("Reason", c.text("status", "reason")),
        AGE,
        _text("VolumeMode", c.unset("spec", "volumeMode"), 1),
    ),
    "ResourceQuota": (
        _text("Request", c.quota(limits=False)),
        _text("Limit", c.quota(limits=True)),
        AGE,
    ),
    "ReplicationController": _replicas(),
    "ReplicaSet": _replicas(),
    "Deployment": (
        _text("Ready", c.share(("status", "readyReplicas"), ("spec", "replicas"))),
        _text("Up-to-date", c.count("status", "updatedReplicas")),
        _text("Available", c.count("status", "availableReplicas")),
        AGE,
        *_template(),
    ),
    "StatefulSet": (
        _text("Ready", c.share(("status", "readyReplicas"), ("spec", "replicas"))),
        AGE,
        *_template(selector=False),
    ),
    "DaemonSet": (
        _number("Desired", c.count("status", "desiredNumberScheduled")),
        _number("Current", c.count("status", "currentNumberScheduled")),
        _number("Ready", c.count("status", "numberReady")),
        _number("Up-to-date", c.count("status", "updatedNumberScheduled")),
        _number("Available", c.count("status", "numberAvailable")),
        _text("Node Selector", lambda o: c.labels(c.at(o, *_TEMPLATE, "nodeSelector"))),
        AGE,
        *_template(),
    ),
    "ControllerRevision": (
        _text("Controller", lambda o: c.NONE),
        _text("Revision", c.count("revision")),
        AGE,
    ),
    "HorizontalPodAutoscaler": (
        _text("Reference", c.target),
        _text("Targets", lambda o: "<unknown>"),
        _text("MinPods", lambda o: str(c.at(o, "spec", "minReplicas") or "<unset>")),
        _text("MaxPods", c.count("spec", "maxReplicas")),
        _text("Replicas", c.count("status", "currentReplicas")),
        AGE,
    ),
    "CronJob": (
        _text("Schedule", c.text("spec", "schedule")),
        _text("Timezone", c.or_none("spec", "timeZone")),
        TableColumn("Suspend", "boolean", cell=lambda o: str(bool(c.at(o, "spec", "suspend")))),
        _number("Active", c.size("status", "active")),
        TableColumn("Last Schedule", path=".status.lastScheduleTime", age=True),
        AGE,
        _text("Containers", c.containers(*_POD, field="name"), 1),
        _text("Images", c.containers(*_POD, field="image"), 1),
        _text("Selector", c.selector("spec", "jobTemplate", "spec", "selector"), 1),
    ),
    "Job": (
        _text("Status", c.job_status),
        _text("Completions", c.completions),
        TableColumn("Duration", path=".status.startTime", age=True, until=".status.completionTime"),
        AGE,
        *_template(),
    ),
    "CertificateSigningRequest": (
        AGE,
        _text("SignerName", c.or_none("spec", "signerName")),
        _text("Requestor", c.text("spec", "username")),
        _text("RequestedDuration", lambda o: str(c.at(o, "spec", "expirationSeconds") or c.NONE)),
        _text("Condition", c.conditions),
    ),
    "Ingress": (
        _text("Class", c.or_none("spec", "ingressClassName")),
        _text("Hosts", c.hosts),
        _text("Address", c.addresses),
        _text("Ports", lambda o: "80, 443" if c.at(o, "spec", "tls") else "80"),
        AGE,
    ),
    "IngressClass": (
        _text("Controller", c.text("spec", "controller")),
        _text("Parameters", lambda o: c.NONE),
        AGE,
    ),
    "NetworkPolicy": (_text("Pod-Selector", c.selector("spec", "podSelector")), AGE),
    "RuntimeClass": (_text("Handler", c.text("handler")), AGE),
    "PodDisruptionBudget": (
        _text("Min Available", c.available("minAvailable")),
        _text("Max Unavailable", c.available("maxUnavailable")),
        _number("Allowed Disruptions", c.count("status", "disruptionsAllowed")),
        AGE,
    ),
    "ClusterRoleBinding": _binding(),
    "RoleBinding": _binding(),
    "PriorityClass": (
        _number("Value", c.count("value")),
        _flag("Global-Default", "globalDefault"),
        AGE,
        _text("PreemptionPolicy", c.text("preemptionPolicy")),
    ),
    "CSIDriver": (
        _flag("AttachRequired", "spec", "attachRequired"),
        _flag("PodInfoOnMount", "spec", "podInfoOnMount"),
        _flag("StorageCapacity", "spec", "storageCapacity"),
        _text("TokenRequests", lambda o: "<unset>"),
        _flag("RequiresRepublish", "spec", "requiresRepublish"),
        _text("Modes", lambda o: ",".join(c.at(o, "spec", "volumeLifecycleModes") or ())),
        AGE,
    ),
    "CSINode": (_number("Drivers", c.size("spec", "drivers")), AGE),
    "StorageClass": (
        _text("Provisioner", c.text("provisioner")),
        _text("ReclaimPolicy", c.text("reclaimPolicy")),
        _text("VolumeBindingMode", c.text("volumeBindingMode")),
        TableColumn("AllowVolumeExpansion", cell=lambda o: bool(o.get("allowVolumeExpansion"))),
        AGE,
    ),
    "VolumeAttachment": (
        TableColumn("Attacher", format="name", cell=c.text("spec", "attacher")),
        _text("PV", c.text("spec", "source", "persistentVolumeName")),
        _text("Node", c.text("spec", "nodeName")),
        _flag("Attached", "status", "attached"),
        AGE,
    ),
}  # fmt: skip
