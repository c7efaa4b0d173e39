"""
Groups, labels, references and small types that the Cluster API kinds share.

All Cluster API kinds are declared ``open``: Structs hold the fields that Moxwell uses, and the
embedded API server keeps the others.
"""

from typing import Any, Literal

from msgspec import field

from moxwell.api.meta import Value

GROUP = "cluster.x-k8s.io"
BOOTSTRAP = "bootstrap.cluster.x-k8s.io"
CONTROL_PLANE = "controlplane.cluster.x-k8s.io"

CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"
CONTROL_PLANE_LABEL = "cluster.x-k8s.io/control-plane"
DEPLOYMENT_NAME = "cluster.x-k8s.io/deployment-name"
SET_NAME = "cluster.x-k8s.io/set-name"
TEMPLATE_HASH = "machine-template-hash"
MANAGED_BY = "cluster.x-k8s.io/managed-by"
NO_NEW_MACHINES = "cluster.x-k8s.io/disable-machine-create"  # on old MachineSets (OnDelete)
REVISION = "machinedeployment.clusters.x-k8s.io/revision"
DELETE_MACHINE = "cluster.x-k8s.io/delete-machine"
UNINITIALIZED_TAINT = "node.cluster.x-k8s.io/uninitialized"
MACHINE_FINALIZER = "machine.cluster.x-k8s.io"
SECRET_TYPE = "cluster.x-k8s.io/secret"

CONTRACT = {"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"}
UPSTREAM: dict[str, Any] = {"status": True, "open": True, "categories": ("cluster-api",)}


class ContractRef(Value, frozen=True, kw_only=True):
    """A reference without a version; readers use the newest version that fulfils the contract."""

    api_group: str = field(name="apiGroup")
    kind: str
    name: str


class ObjectReference(Value, frozen=True, kw_only=True):
    """A reference with version and namespace, as in v1beta1."""

    api_version: str = field(name="apiVersion", default="")
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class APIEndpoint(Value, frozen=True, kw_only=True):
    """The host and port of an API server."""

    host: str = ""
    port: int = 0

    def __bool__(self) -> bool:
        return bool(self.host)


class MachineAddress(Value, frozen=True, kw_only=True):
    """One address of a machine."""

    type: Literal["Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"]
    address: str


class MachineTaint(Value, frozen=True, kw_only=True):
    """A taint of the Node that a machine becomes."""

    key: str
    value: str = ""
    effect: str = ""
    propagation: str = ""


class NetworkRanges(Value, frozen=True, kw_only=True):
    """CIDR blocks of pods or services."""

    cidr_blocks: tuple[str, ...] = field(name="cidrBlocks", default=())


class FailureDomain(Value, frozen=True, kw_only=True):
    """A failure domain that machines can be spread over."""

    name: str
    control_plane: bool | None = field(name="controlPlane", default=None)
    attributes: dict[str, str] = field(default_factory=dict)
