"""
Namespace, Secret, ConfigMap, ServiceAccount, Service and Lease.

The repr of a Secret hides its data, so that the data does not reach a log.
"""

import base64
from collections.abc import Mapping
from typing import Any

from msgspec import field

from moxwell.api.kinds import Object, kind
from moxwell.api.meta import Value


class NamespaceSpec(Value, frozen=True, kw_only=True):
    finalizers: tuple[str, ...] = ()


class NamespaceStatus(Value, frozen=True, kw_only=True):
    phase: str = ""


@kind(group="", version="v1", plural="namespaces", scope="Cluster", status=True, builtin=True)
class Namespace(Object, frozen=True, kw_only=True):
    """A core/v1 Namespace."""

    spec: NamespaceSpec = field(default_factory=NamespaceSpec)
    status: NamespaceStatus = field(default_factory=NamespaceStatus)


@kind(group="", version="v1", plural="secrets", builtin=True)
class Secret(Object, frozen=True, kw_only=True):
    """A core/v1 Secret; ``data`` is base64 as encoded, ``read`` decodes one key."""

    type: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    string_data: Mapping[str, str] = field(name="stringData", default_factory=dict)
    immutable: bool | None = None

    def read(self, key: str) -> str | None:
        """Return the decoded value of a key, or None."""
        found = self.data.get(key)
        return None if found is None else base64.b64decode(found).decode()

    def __repr__(self) -> str:
        return f"Secret({self.key}, type={self.type!r}, keys={sorted(self.data)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("key", self.key), ("type", self.type), ("keys", sorted(self.data))]


@kind(group="", version="v1", plural="configmaps", builtin=True)
class ConfigMap(Object, frozen=True, kw_only=True):
    """A core/v1 ConfigMap."""

    data: Mapping[str, str] = field(default_factory=dict)
    binary_data: Mapping[str, str] = field(name="binaryData", default_factory=dict)
    immutable: bool | None = None


@kind(group="", version="v1", plural="serviceaccounts", builtin=True)
class ServiceAccount(Object, frozen=True, kw_only=True):
    """A core/v1 ServiceAccount."""

    automount_token: bool | None = field(name="automountServiceAccountToken", default=None)


class ServicePort(Value, frozen=True, kw_only=True):
    """A port of a Service."""

    name: str = ""
    protocol: str = "TCP"
    port: int
    target_port: int | str | None = field(name="targetPort", default=None)
    node_port: int = field(name="nodePort", default=0)


class ServiceSpec(Value, frozen=True, kw_only=True):
    """The desired state of a Service."""

    type: str = "ClusterIP"
    selector: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[ServicePort, ...] = ()
    cluster_ip: str = field(name="clusterIP", default="")
    cluster_ips: tuple[str, ...] = field(name="clusterIPs", default=())
    ip_families: tuple[str, ...] = field(name="ipFamilies", default=())
    ip_family_policy: str | None = field(name="ipFamilyPolicy", default=None)
    load_balancer_class: str | None = field(name="loadBalancerClass", default=None)
    load_balancer_ip: str = field(name="loadBalancerIP", default="")
    load_balancer_source_ranges: tuple[str, ...] = field(
        name="loadBalancerSourceRanges", default=()
    )
    external_ips: tuple[str, ...] = field(name="externalIPs", default=())
    external_traffic_policy: str = field(name="externalTrafficPolicy", default="")
    allocate_load_balancer_node_ports: bool | None = field(
        name="allocateLoadBalancerNodePorts", default=None
    )


class PortStatus(Value, frozen=True, kw_only=True):
    port: int
    protocol: str
    error: str | None = None


class LoadBalancerIngress(Value, frozen=True, kw_only=True):
    """An address at which a load balancer is reached."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = field(name="ipMode", default=None)
    ports: tuple[PortStatus, ...] = ()


class LoadBalancerStatus(Value, frozen=True, kw_only=True):
    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(Value, frozen=True, kw_only=True):
    load_balancer: LoadBalancerStatus = field(
        name="loadBalancer", default_factory=LoadBalancerStatus
    )


@kind(group="", version="v1", plural="services", status=True, builtin=True)
class Service(Object, frozen=True, kw_only=True):
    """A core/v1 Service."""

    spec: ServiceSpec = field(default_factory=ServiceSpec)
    status: ServiceStatus = field(default_factory=ServiceStatus)


class LeaseSpec(Value, frozen=True, kw_only=True):
    """The holder of a lease; times are MicroTime strings, see ``meta.micro_time``."""

    holder_identity: str | None = field(name="holderIdentity", default=None)
    lease_duration_seconds: int | None = field(name="leaseDurationSeconds", default=None)
    acquire_time: str | None = field(name="acquireTime", default=None)
    renew_time: str | None = field(name="renewTime", default=None)
    lease_transitions: int | None = field(name="leaseTransitions", default=None)


@kind(group="coordination.k8s.io", version="v1", plural="leases", builtin=True)
class Lease(Object, frozen=True, kw_only=True):
    """A coordination/v1 Lease."""

    spec: LeaseSpec = field(default_factory=LeaseSpec)


KINDS: tuple[type[Object], ...] = (Namespace, Secret, ConfigMap, ServiceAccount, Service, Lease)
