"""
Bootstrap data that is rendered from the templates of a node class. Pure.

The Secret of a machine holds the templates and what is known of the node before its guest exists;
identity and network are added when the ISO is built. Roots of the templates are those of
karpenter-provider-proxmox: everything for user-data, ``.Metadata`` for meta-data and vendor-data,
``.Network`` for network-config.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import yaml

from moxwell.api.meta import Value
from moxwell.bootstrap.go_templates.errors import TemplateFailed
from moxwell.bootstrap.go_templates.values import SizedInt, StringMap, Strings
from moxwell.bootstrap.netplan import as_network_config
from moxwell.bootstrap.network import GuestNetwork, HostBridge, Nic
from moxwell.bootstrap.node_context import (
    KubeletSettings,
    KubeletTaint,
    NodeContext,
    NodeInterface,
    NodeKubernetes,
    NodeMetadata,
    NodeNetwork,
    NodeResources,
)
from moxwell.bootstrap.vendor_data import vendor_data
from moxwell.errors import Invalid

FORMAT = "node-templates"
DEFAULT_MTU = 1500
USER_DATA, META_DATA = "user-data", "meta-data"
NETWORK_CONFIG, VENDOR_DATA = "network-config", "vendor-data"
FILES = (USER_DATA, META_DATA, NETWORK_CONFIG, VENDOR_DATA)


class InvalidNodeTemplate(Invalid):
    """A template of a node class does not parse or cannot be executed."""

    reason = "InvalidTemplate"


class NodeTemplateData(Value, frozen=True, kw_only=True):
    """What the Secret of a machine contains."""

    templates: Mapping[str, str] = msgspec.field(default_factory=dict)  # by file
    values: Mapping[str, str] = msgspec.field(default_factory=dict)
    node_class: str = msgspec.field(name="nodeClass", default="")
    instance_type: str = msgspec.field(name="instanceType", default="")
    tags: tuple[str, ...] = ()
    cpus: int = 0
    memory_bytes: int = msgspec.field(name="memoryBytes", default=0)
    hugepages_1gi: int = msgspec.field(name="hugepages1Gi", default=0)
    hugepages_2mi: int = msgspec.field(name="hugepages2Mi", default=0)
    version: str = ""
    root_ca: str = msgspec.field(name="rootCA", default="")
    token: str = ""
    kubelet: Mapping[str, Any] = msgspec.field(default_factory=dict)  # KubeletConfiguration
    taints: tuple[Mapping[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"NodeTemplateData({self.node_class!r}, {sorted(self.templates)})"


class NodeIdentity(Value, frozen=True, kw_only=True):
    """The guest that the files are for."""

    hostname: str = ""
    provider_id: str = ""
    vmid: int = 0
    uuid: str = ""
    region: str = ""
    host: str = ""


def encode(data: NodeTemplateData) -> str:
    """The value of the Secret."""
    return msgspec.json.encode(data).decode()


def decode(value: bytes) -> NodeTemplateData:
    """Read the value of the Secret; an error does not repeat it, since it contains a token."""
    try:
        return msgspec.json.decode(value, type=NodeTemplateData)
    except msgspec.DecodeError:
        raise Invalid(f"bootstrap data of format {FORMAT} cannot be read") from None


def render_files(
    data: NodeTemplateData, identity: NodeIdentity, network: GuestNetwork
) -> dict[str, bytes]:
    """The files of the bootstrap ISO; a file without a template gets a default."""
    context = context_of(data, identity, network)
    roots = {
        USER_DATA: context,
        META_DATA: context.metadata,
        VENDOR_DATA: context.metadata,
        NETWORK_CONFIG: context.network,
    }
    files = {
        USER_DATA: b"#cloud-config\n{}\n",
        META_DATA: _meta_data(identity),
        NETWORK_CONFIG: as_network_config(network),
        VENDOR_DATA: vendor_data(),
    }
    for name in FILES:
        if text := data.templates.get(name):
            files[name] = _rendered(name, text, roots[name])
    return files


def _rendered(name: str, text: str, root: Any) -> bytes:
    from moxwell.bootstrap.go_templates.render import render  # machines of other classes need none

    try:
        return render(text, root).encode()
    except TemplateFailed as error:
        raise InvalidNodeTemplate(f"{name}: {error}") from error


def _meta_data(identity: NodeIdentity) -> bytes:
    meta = {
        "instance-id": identity.provider_id.removeprefix("proxmox://"),
        "local-hostname": identity.hostname,
        "hostname": identity.hostname,
        "provider-id": identity.provider_id,
        "region": identity.region,
        "zone": identity.host,
    }
    return yaml.safe_dump(meta, sort_keys=False).encode()


def context_of(
    data: NodeTemplateData, identity: NodeIdentity, network: GuestNetwork
) -> NodeContext:
    """The data that the templates see."""
    settings = replace(kubelet_settings(data), provider_id=identity.provider_id)
    return NodeContext(
        metadata=_metadata(data, identity),
        network=_network(network),
        resources=NodeResources(
            cpu=SizedInt(data.cpus, "int64"),
            memory=SizedInt(data.memory_bytes, "int64"),
            hugepages_1gi=data.hugepages_1gi,
            hugepages_2mi=data.hugepages_2mi,
        ),
        kubernetes=NodeKubernetes(
            version=data.version,
            root_ca=data.root_ca,
            bootstrap_token=data.token,
            kubelet_configuration=settings,
        ),
        values=StringMap(data.values),
    )


def _metadata(data: NodeTemplateData, identity: NodeIdentity) -> NodeMetadata:
    return NodeMetadata(
        hostname=identity.hostname,
        instance_id=str(identity.vmid),
        instance_uuid=identity.uuid,
        instance_type=data.instance_type,
        provider_id=identity.provider_id,
        region=identity.region,
        zone=identity.host,
        tags=Strings(data.tags),
        node_class=data.node_class,
    )


def _network(network: GuestNetwork) -> NodeNetwork:
    servers = dict.fromkeys(address for nic in network.nics for address in nic.dns)
    domains = dict.fromkeys(domain for nic in network.nics for domain in nic.search)
    return NodeNetwork(
        interfaces=tuple(
            _interface(nic, network.bridges.get(nic.name, HostBridge())) for nic in network.nics
        ),
        name_servers=Strings(servers),
        search_domains=Strings(domains),
    )


def _interface(nic: Nic, bridge: HostBridge) -> NodeInterface:
    four = [a for a in nic.addresses if not a.is6]
    six = [a for a in nic.addresses if a.is6]
    return NodeInterface(
        name=nic.inside,
        mac=nic.mac,
        dhcp4=nic.dhcp4,
        dhcp6=nic.dhcp6,
        address4=Strings(a.cidr for a in four),
        address6=Strings(a.cidr for a in six),
        gateway4=next((a.gateway for a in four if a.gateway), ""),
        gateway6=next((a.gateway for a in six if a.gateway), ""),
        mtu=SizedInt(nic.mtu or bridge.mtu or DEFAULT_MTU, "uint32"),
        node_address4=bridge.address4,
        node_address6=bridge.address6,
        node_gateway4=bridge.gateway4,
        node_gateway6=bridge.gateway6,
    )


def kubelet_settings(data: NodeTemplateData) -> KubeletSettings:
    """The fields of a KubeletConfiguration that the templates see."""
    given = data.kubelet
    return KubeletSettings(
        cpu_manager_policy=given.get("cpuManagerPolicy", ""),
        cpu_cfs_quota=given.get("cpuCFSQuota"),
        cpu_cfs_quota_period=given.get("cpuCFSQuotaPeriod", ""),
        topology_manager_policy=given.get("topologyManagerPolicy", ""),
        topology_manager_scope=given.get("topologyManagerScope", ""),
        image_gc_high_threshold_percent=_int32(given.get("imageGCHighThresholdPercent")),
        image_gc_low_threshold_percent=_int32(given.get("imageGCLowThresholdPercent")),
        shutdown_grace_period=given.get("shutdownGracePeriod", ""),
        allowed_unsafe_sysctls=Strings(given.get("allowedUnsafeSysctls", ())),
        cluster_dns=Strings(given.get("clusterDNS", ())),
        max_pods=_int32(given.get("maxPods")),
        fail_swap_on=given.get("failSwapOn"),
        system_reserved=StringMap(given.get("systemReserved", {})),
        kube_reserved=StringMap(given.get("kubeReserved", {})),
        eviction_hard=StringMap(given.get("evictionHard", {})),
        register_with_taints=tuple(
            KubeletTaint(key=t.get("key", ""), value=t.get("value", ""), effect=t.get("effect", ""))
            for t in data.taints
        ),
    )


def _int32(value: int | None) -> SizedInt | None:
    return None if value is None else SizedInt(value, "int32")
