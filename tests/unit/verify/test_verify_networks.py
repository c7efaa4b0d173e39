"""Separation of the networks of tenants, hosts and storages."""

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest

from moxwell.api.cozystack import Tenant, TenantStatus
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.pve.endpoints.nodes import HostInterface
from moxwell.pve.guests import GuestConfig
from moxwell.verify import networks
from moxwell.verify.host_names import resolve_host
from moxwell.verify.model import Observation, ObservedRegion

HOST = HostInterface(iface="vmbr0", cidr="10.0.0.11/24")
SECOND = HostInterface(iface="vmbr0", cidr="10.0.0.12/24")
EMPTY = HostInterface(iface="vmbr1")


def tenant(name: str) -> Tenant:
    given = {"metadata": {"name": name, "namespace": "default"}}
    status = TenantStatus(namespace=f"tenant-{name}")
    return msgspec.structs.replace(msgspec.convert(given, Tenant, strict=False), status=status)


def machine(name: str, vmid: int) -> ProxmoxMachine:
    spec = {"region": "north", "virtualMachineID": vmid, "providerID": f"proxmox://north/{vmid}"}
    meta = {"name": f"m{vmid}", "namespace": f"tenant-{name}"}
    return msgspec.convert({"metadata": meta, "spec": spec}, ProxmoxMachine, strict=False)


def world(first: str, second: str, servers: tuple[str, ...] = ()) -> Observation:
    nets = {1: first, 2: second}
    region = ObservedRegion(
        "north",
        configs={vmid: GuestConfig(raw={"net0": f"virtio=x,{net}"}) for vmid, net in nets.items()},
        interfaces={"pve1": (HOST, EMPTY), "pve2": (SECOND, EMPTY)},
        storage_servers={"nfs": servers},
    )
    return Observation(
        now=datetime(2026, 1, 1, tzinfo=UTC),
        regions={"north": region},
        tenants=(tenant("red"), tenant("blue")),
        machines=(machine("red", 1), machine("blue", 2)),
    )


CASES: dict[str, tuple[Observation, set[tuple[str, str]]]] = {
    "VNets": (world("bridge=mxred", "bridge=mxblue"), set()),
    "VLANs on the bridge of the hosts": (
        world("bridge=vmbr0,tag=7", "bridge=vmbr0,tag=8"), set(),
    ),
    "the same VLAN": (
        world("bridge=vmbr1,tag=7", "bridge=vmbr1,tag=7"), {("remark", "NetworkShared")},
    ),
    "the bridge of the hosts": (
        world("bridge=vmbr0", "bridge=mxblue"), {("remark", "ManagementNetworkShared")},
    ),
    "the network of a storage": (
        world("bridge=vmbr0", "bridge=mxblue", ("10.0.0.9",)),
        {("remark", "ManagementNetworkShared"), ("remark", "StorageNetworkShared")},
    ),
    "a storage elsewhere": (
        world("bridge=vmbr1", "bridge=mxblue", ("10.9.0.9", "2001:db8::9")), set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "expected"), CASES.values(), ids=CASES)
def test_networks_that_are_shared_are_found(
    seen: Observation, expected: set[tuple[str, str]]
) -> None:
    found = list(networks.separate(seen))
    assert {(f.level, f.check) for f in found} == expected
    assert all(f.do for f in found)


def test_a_shared_network_is_one_remark_for_all_hosts() -> None:
    found = networks.separate(world("bridge=vmbr0", "bridge=mxblue", ("10.0.0.9",)))
    hosts = "pve1 has 10.0.0.11/24, pve2 has 10.0.0.12/24"
    assert [finding.what for finding in found] == [
        f"nodes of tenant-red are on vmbr0 in north, where {hosts}",
        "nodes of tenant-red are on the network of the storage nfs in north",
    ]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.0.0.9", {"10.0.0.9"}),
        ("2001:DB8::9", {"2001:db8::9"}),
        ("localhost", {"127.0.0.1"}),
        ("no-such-host.invalid", set()),
        ("a" * 80 + ".example", set()),
    ],
)
def test_a_storage_server_is_resolved(host: str, expected: set[str]) -> None:
    assert asyncio.run(resolve_host(host)) - {"::1"} == expected
