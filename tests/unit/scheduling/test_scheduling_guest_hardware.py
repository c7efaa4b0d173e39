"""From a spec to network devices, address requests and the first configuration write."""

from typing import Any

import msgspec
import pytest

from moxwell.api.infra.cluster import ProxmoxClusterSpec
from moxwell.api.infra.mac_address import mac_of
from moxwell.api.infra.machine import ProxmoxMachineSpec
from moxwell.api.infra.zone_settings import (
    ZoneNotFound,
    ZoneSettings,
    generated_pools,
    zone_settings_of,
)
from moxwell.bootstrap.network import InterfaceAddress
from moxwell.bootstrap.network_plan import address_requests, devices_of, network_of
from moxwell.scheduling.guest_hardware import (
    boot_disk,
    disk_value,
    nic_value,
    pci_value,
    wanted_config,
)

POOL = {"addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24, "gateway": "10.0.0.1"}
SIX = {"addresses": ["2001:db8::10-2001:db8::20"], "prefix": 64, "gateway": "2001:db8::1"}
TEMPLATE = {
    "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr7,firewall=1",
    "net1": "virtio=BC:24:11:00:00:02,bridge=vmbr8",
    "scsi0": "lvm:base-1-disk-0,size=8G",
    "boot": "order=ide2;scsi0",
    "ide2": "none,media=cdrom",
    "smbios1": "uuid=old,manufacturer=QUNNRQ==,base64=1",
    "agent": "1",
}


def machine(**spec: Any) -> ProxmoxMachineSpec:
    return msgspec.convert(spec, ProxmoxMachineSpec)


def cluster(**spec: Any) -> ProxmoxClusterSpec:
    return msgspec.convert(spec, ProxmoxClusterSpec)


def config(
    spec: ProxmoxMachineSpec, ground: ZoneSettings | None = None, **current: str
) -> dict[str, str]:
    devices = devices_of(spec, {k: v for k, v in TEMPLATE.items() if k.startswith("net")})
    changes = wanted_config(
        spec,
        ground or ZoneSettings(),
        owner="uid",
        devices=devices,
        current=current or TEMPLATE,
        storage="lvm",
        iso="local:iso/x.iso",
    )
    return {**changes.put, "-": ",".join(changes.drop)}


@pytest.mark.parametrize(
    "net0", ["", "virtio", "=,,=", "virtio=x,bridge", "nonsense,queues=,tag=many"]
)
def test_a_network_device_of_the_template_that_cannot_be_read_drops_nothing_else(net0: str) -> None:
    spec = machine(numCores=4, numSockets=1, memoryMiB=2048)
    expected = config(spec)
    made = config(spec, None, **(TEMPLATE | {"net0": net0}))
    assert made["net0"].startswith(f"virtio={mac_of('uid', devices_of(spec, TEMPLATE)[0])},bridge=")
    assert made | {"net0": ""} == expected | {"net0": ""}
    assert (made["cores"], made["memory"]) == ("4", "2048")


def test_what_the_spec_does_not_say_stays_the_templates() -> None:
    made = config(machine())
    mac = mac_of("uid", devices_of(machine(), TEMPLATE)[0])
    assert made["net0"] == f"virtio={mac},bridge=vmbr7,firewall=1"
    assert made["smbios1"] == "uuid=uid,manufacturer=QUNNRQ==,base64=1"
    assert made["ide2"] == "local:iso/x.iso,media=cdrom"
    assert "cores" not in made
    assert "agent" not in made
    assert made["-"] == ""


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("", "uuid=uid,sku=YzEuMlZDUFUtNEdC,base64=1"),
        ("uuid=old,sku=b2xk,base64=1", "uuid=uid,sku=YzEuMlZDUFUtNEdC,base64=1"),
        ("manufacturer=ACME", "uuid=uid,manufacturer=QUNNRQ==,sku=YzEuMlZDUFUtNEdC,base64=1"),
    ],
)
def test_the_instance_type_is_the_sku(template: str, expected: str) -> None:
    current = TEMPLATE | {"smbios1": template}
    made = config(machine(instanceType="c1.2VCPU-4GB"), None, **current)
    assert made["smbios1"] == expected


def test_devices_of_the_template_that_are_not_wanted_go() -> None:
    made = config(machine(network={"networkDevices": [{"name": "net0", "bridge": "x"}]}))
    assert made["-"] == "net1"


def test_the_zone_brings_bridge_and_vlan() -> None:
    made = config(machine(), ZoneSettings(bridge="vmbr3", vlan=9))
    assert "bridge=vmbr3" in made["net0"]
    assert "tag=9" in made["net0"]


@pytest.mark.parametrize(
    "spec, key, value",
    [
        pytest.param({"numCores": 4}, "cores", "4", id="cores"),
        pytest.param({"numSockets": 2}, "sockets", "2", id="sockets"),
        pytest.param({"memoryMiB": 4096}, "memory", "4096", id="memory"),
        pytest.param({"balloonMiB": 0}, "balloon", "0", id="no balloon"),
        pytest.param({"cpuType": "host"}, "cpu", "host", id="CPU type"),
        pytest.param({"cpuLimit": 1.5}, "cpulimit", "1.5", id="CPU limit"),
        pytest.param({"numa": True}, "numa", "1", id="NUMA"),
        pytest.param({"onBoot": False}, "onboot", "0", id="not on boot"),
        pytest.param({"bios": "ovmf"}, "bios", "ovmf", id="UEFI"),
        pytest.param({"pciDevices": [{"host": "0000:01:00"}]}, "hostpci0", "0000:01:00", id="PCI"),
    ],
)
def test_hardware(spec: dict[str, Any], key: str, value: str) -> None:
    assert config(machine(**spec))[key] == value


def test_the_agent_is_enabled_unless_it_is_skipped() -> None:
    assert config(machine(), scsi0="lvm:x,size=1G")["agent"] == "enabled=1"
    skipped = machine(checks={"skipQemuGuestAgent": True})
    assert "agent" not in config(skipped, scsi0="lvm:x,size=1G")


def test_disks_and_devices_as_property_strings() -> None:
    spec = machine(
        disks={"extra": [{"disk": "scsi1", "sizeGb": 5, "discard": True, "readOnly": True}]},
        pciDevices=[{"mapping": "gpu", "primaryGPU": True, "pcie": True}],
    )
    assert spec.disks is not None
    assert disk_value(spec.disks.extra[0], "lvm") == "lvm:5,ro=1,discard=on"
    assert pci_value(spec.pci_devices[0]) == "mapping=gpu,pcie=1,x-vga=1"
    assert config(spec)["scsi1"] == "lvm:5,ro=1,discard=on"
    assert "scsi1" not in config(spec, scsi0="lvm:x", scsi1="lvm:there")


def test_nic_values() -> None:
    device = machine(
        network={"networkDevices": [{"name": "net0", "model": "e1000", "mtu": 1400, "vlan": 5}]}
    ).network
    assert device is not None
    value = nic_value("uid", device.network_devices[0], ZoneSettings(), "")
    assert value.startswith("e1000=BC:24:11:")
    assert value.endswith(",bridge=vmbr0,mtu=1400,tag=5")


@pytest.mark.parametrize(
    "current, named, slot",
    [
        pytest.param(TEMPLATE, "", "scsi0", id="the first disk of the boot order, not the CD-ROM"),
        pytest.param({"virtio0": "x", "boot": "order=virtio0"}, "", "virtio0", id="by order"),
        pytest.param({"sata0": "x", "bootdisk": "sata0"}, "", "sata0", id="by the old key"),
        pytest.param(TEMPLATE, "scsi5", "scsi5", id="as named"),
        pytest.param({}, "", "scsi0", id="nothing known"),
    ],
)
def test_boot_disk(current: dict[str, str], named: str, slot: str) -> None:
    assert boot_disk(current, named) == slot


# ---- addresses


def test_default_pools_go_to_the_first_device() -> None:
    spec = machine(network={"networkDevices": [{"name": "net1"}, {"name": "net0"}]})
    devices = devices_of(spec, {})
    ground = zone_settings_of("c", cluster(ipv4Config=POOL, ipv6Config=SIX))
    wants = address_requests("m", devices, ground)
    assert [(w.name, w.pool.name) for w in wants] == [
        ("m-net0-00-inet", "c-v4-icip"),
        ("m-net0-01-inet", "c-v6-icip"),
    ]


def test_a_device_has_pools_of_its_own_besides() -> None:
    pools = [{"kind": "GlobalInClusterIPPool", "name": "shared"}]
    spec = machine(
        network={"networkDevices": [{"name": "net0"}, {"name": "net1", "ipPoolRef": pools}]}
    )
    wants = address_requests(
        "m", devices_of(spec, {}), zone_settings_of("c", cluster(ipv4Config=POOL))
    )
    assert [(w.device, w.pool.kind) for w in wants] == [
        ("net0", "InClusterIPPool"),
        ("net1", "GlobalInClusterIPPool"),
    ]


def test_dhcp_takes_the_place_of_a_pool() -> None:
    spec = machine(network={"networkDevices": [{"name": "net0", "dhcp4": True}]})
    ground = zone_settings_of("c", cluster(ipv4Config=POOL, ipv6Config=SIX))
    assert [w.pool.name for w in address_requests("m", devices_of(spec, {}), ground)] == [
        "c-v6-icip"
    ]


def test_a_default_device_without_any_pool_uses_dhcp() -> None:
    devices = devices_of(machine(), {})
    network = network_of("uid", machine(), devices, ZoneSettings(), {})
    assert network.nics[0].dhcp4
    given = {"net0": (InterfaceAddress("10.0.0.5", 24),)}
    assert not network_of("uid", machine(), devices, ZoneSettings(), given).nics[0].dhcp4


def test_default_routes_of_further_devices_do_not_compete() -> None:
    spec = machine(network={"networkDevices": [{"name": "net0"}, {"name": "net1"}]})
    given = {
        "net0": (InterfaceAddress("10.0.0.5", 24, "10.0.0.1", 100),),
        "net1": (InterfaceAddress("10.1.0.5", 24, "10.1.0.1"),),
    }
    network = network_of("uid", spec, devices_of(spec, {}), ZoneSettings(), given)
    assert [n.addresses[0].metric for n in network.nics] == [100, 200]


# ---- zones


ZONED = cluster(
    ipv4Config=POOL,
    dnsServers=["8.8.8.8"],
    region="r1",
    zoneConfig=[
        {"zone": "a", "storage": "ssd", "nodes": ["h1"]},
        {"zone": "b", "region": "r2", "ipv4Config": POOL, "dnsServers": ["9.9.9.9"]},
    ],
)


def test_a_zone_says_what_is_right_there() -> None:
    first, second = zone_settings_of("c", ZONED, "a"), zone_settings_of("c", ZONED, "b")
    assert (first.region, first.storage, first.nodes) == ("r1", "ssd", frozenset({"h1"}))
    assert [p.ref.name for p in first.pools] == ["c-v4-icip"]
    assert (second.region, second.dns) == ("r2", ("9.9.9.9",))
    assert [p.ref.name for p in second.pools] == ["c-b-v4-icip"]


def test_an_unknown_zone_is_no_default() -> None:
    with pytest.raises(ZoneNotFound, match="it has a, b"):
        zone_settings_of("c", ZONED, "z")


def test_pools_are_called_as_capmox_calls_them() -> None:
    assert [p.name for p in generated_pools("c", ZONED)] == ["c-b-v4-icip", "c-v4-icip"]
