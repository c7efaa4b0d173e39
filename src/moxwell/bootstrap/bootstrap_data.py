"""
Builds the files of a guest's NoCloud ISO for cloud-init, Ignition and Talos. Pure.

User data for cloud-init is passed on unchanged, since it may be a Jinja template. ``instance-id``
is the providerID without its scheme, so that the usual line in kubeadm configurations,
``provider-id: proxmox://'{{ ds.meta_data.instance_id }}'``, gives the machine's providerID.
"""

from dataclasses import dataclass
from typing import Any

import yaml

from moxwell.bootstrap import ignition, node_templates, talos
from moxwell.bootstrap.netplan import as_network_config
from moxwell.bootstrap.network import GuestNetwork
from moxwell.bootstrap.vendor_data import EMPTY, vendor_data
from moxwell.errors import Invalid

SCHEME = "proxmox://"
FORMATS = ("cloud-config", "ignition", "talos", node_templates.FORMAT)


@dataclass(frozen=True, slots=True)
class GuestLocation:
    """Where the guest is created, for node labels; a migration does not change it."""

    region: str = ""
    zone: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class BootstrapIdentity:
    """The name and providerID of the guest."""

    hostname: str
    provider_id: str
    kubernetes: str = ""
    inject_provider_id: bool = True
    place: GuestLocation = GuestLocation()
    vmid: int = 0
    uuid: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class BootstrapData:
    """Bootstrap data and its format; never printed, since it contains a join token.

    ``script`` is what cloud-init runs before the commands of the bootstrap data.
    """

    data: bytes = b""
    format: str = "cloud-config"
    script: bytes = EMPTY

    def __repr__(self) -> str:
        return f"BootstrapData({len(self.data)} bytes, {self.format})"


def nocloud_files(
    bootstrap: BootstrapData, identity: BootstrapIdentity, network: GuestNetwork
) -> dict[str, bytes]:
    """The files of the bootstrap ISO."""
    if bootstrap.format not in FORMATS:
        raise Invalid(f"bootstrap format {bootstrap.format!r} is not one of {', '.join(FORMATS)}")
    if bootstrap.format == node_templates.FORMAT:
        data = node_templates.decode(bootstrap.data)
        return node_templates.render_files(data, _node_identity(identity), network)
    meta = as_meta_data(identity)
    if bootstrap.format == "ignition":
        user = ignition.merge(bootstrap.data, identity.hostname, identity.provider_id, network)
        return {"user-data": user, "meta-data": meta, "network-config": b"version: 1\nconfig: []\n"}
    user = bootstrap.data or b"#cloud-config\n{}\n"
    files = {"meta-data": meta, "network-config": as_network_config(network)}
    if bootstrap.format == "talos":
        user = talos.merge(bootstrap.data, identity.hostname, identity.provider_id)
    else:
        files["vendor-data"] = vendor_data(bootstrap.script)
    return {"user-data": user, **files}


def _node_identity(identity: BootstrapIdentity) -> node_templates.NodeIdentity:
    return node_templates.NodeIdentity(
        hostname=identity.hostname,
        provider_id=identity.provider_id,
        vmid=identity.vmid,
        uuid=identity.uuid,
        region=identity.place.region,
        host=identity.place.host,
    )


def as_meta_data(identity: BootstrapIdentity) -> bytes:
    """The file ``meta-data``."""
    meta: dict[str, Any] = {
        "instance-id": identity.provider_id.removeprefix(SCHEME),
        "local-hostname": identity.hostname,
        "hostname": identity.hostname,
    }
    if identity.inject_provider_id:
        meta["provider-id"] = identity.provider_id
    if identity.kubernetes:
        meta["kubernetes-version"] = identity.kubernetes
    place = identity.place
    found = {"region": place.region, "zone": place.zone, "proxmox-node": place.host}
    meta |= {key: value for key, value in found.items() if value}
    text: str = yaml.dump(meta, Dumper=yaml.CSafeDumper, sort_keys=False)
    return text.encode()
