"""Property strings, drives and option tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.lab.proxmox import parameter_validation
from moxwell.lab.proxmox.config_schema import ct, devices, drives, formats, vm
from moxwell.lab.proxmox.errors import FormatError

MISSING_IP = "missing property - 'ipconfig0.gw' requires this property"
REFUSED = [
    ("a key without value", "net0", "virtio,bridge=", "missing key in comma-separated list"),
    ("an unknown model", "net0", "foo,bridge=vmbr0", "net0.model: value 'foo' does not have"),
    ("a VLAN too large", "net0", "virtio,tag=9999", "net0.tag: value must have a maximum value"),
    ("a bad MAC", "net0", "virtio=zz:zz", "does not look like a valid unicast MAC address"),
    ("a multicast MAC", "net0", "virtio=01:00:00:00:00:01", "valid unicast MAC address"),
    ("two models", "net0", "virtio,e1000", "duplicate key in comma-separated list property"),
    ("a drive without storage", "scsi0", "shared", "unable to parse volume ID 'shared'"),
    (
        "an unknown drive option",
        "scsi0",
        "shared:1,bogus=1",
        "scsi0.bogus: property is not defined",
    ),
    ("an unknown format", "scsi0", "shared:1,format=vdi", "'raw, qcow, qed, qcow2, vmdk, cloop'"),
    ("iothread on ide", "ide0", "shared:1,iothread=1", "ide0.iothread: property is not defined"),
    ("ssd on virtio", "virtio0", "shared:1,ssd=1", "virtio0.ssd: property is not defined"),
    ("a short wwn", "scsi0", "shared:1,wwn=0x12", "scsi0.wwn: value does not match the regex"),
    ("no memory", "memory", "8", "memory.current: value must have a minimum value of 16"),
    ("memory in words", "memory", "abc", "memory.current: type check ('integer') failed"),
    ("a gateway alone", "ipconfig0", "gw=10.0.0.1", MISSING_IP),
    ("an address without mask", "ipconfig0", "ip=10.0.0.1", "valid ipv4 network configuration"),
    ("a snippet without key", "cicustom", "bogus", "value without key, but schema does not"),
    ("an unknown CPU", "cpu", "nosuchcpu", "Built-in cputype 'nosuchcpu' is not defined"),
    ("a CPU flag of hosts", "cpu", "host,flags=+vmx", "VM-specific CPU flags must be a subset of"),
    ("NUMA without CPUs", "numa1", "memory=128", "numa1.cpus: property is missing"),
    ("an unknown policy", "numa1", "cpus=0,policy=x", "'preferred, bind, interleave'"),
    ("a range backwards", "affinity", "1-0", "unable to parse cpuset option"),
    ("a boot device unknown", "boot", "order=foo0", "invalid boot device 'foo0'"),
    ("a bad tag", "tags", "a b!", "invalid characters in tag"),
    ("a bad startup", "startup", "order=x", "unable to parse startup options"),
    ("a hotplug feature", "hotplug", "disk,foo", "invalid hotplug feature 'foo'"),
    ("a key with blanks", "sshkeys", "ssh-rsa AAA", "invalid urlencoded string"),
]


@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_rejected_values(case: tuple[str, str, str, str]) -> None:
    _, name, text, words = case
    with pytest.raises(FormatError) as refused:
        parameter_validation.coerce(vm.options(8)[name], text)
    assert words in str(refused.value)


def test_messages_differ_by_version() -> None:
    with pytest.raises(FormatError, match=r"missing property required by 'ipconfig0\.gw'"):
        parameter_validation.coerce(vm.options(9)["ipconfig0"], "gw=10.0.0.1")


ACCEPTED = [
    ("a plain bridge", "net0", "virtio,bridge=vmbr0,firewall=1"),
    ("a card by address", "net31", "e1000=AA:BB:CC:00:11:22,bridge=vmbr0,trunks=2;5-9"),
    ("dhcp with a gateway", "ipconfig0", "ip=dhcp,gw=10.0.0.1"),
    ("automatic IPv6", "ipconfig0", "ip=dhcp,ip6=auto"),
    ("no disk at all", "ide2", "none,media=cdrom"),
    ("a path", "scsi0", "/dev/sdb"),
    ("a CPU with flags", "cpu", "x86-64-v2-AES,flags=+aes;-pcid"),
    ("no CPUs at all", "affinity", ""),
    ("an empty order", "boot", " "),
    ("a legacy order", "boot", "cdn"),
    ("a mapped device", "hostpci0", "mapping=gpu,pcie=1"),
]


@pytest.mark.parametrize("case", ACCEPTED, ids=[case[0] for case in ACCEPTED])
def test_accepted_values(case: tuple[str, str, str]) -> None:
    assert parameter_validation.coerce(vm.options(8)[case[1]], case[2]) == case[2]


def test_drive_options_are_sorted() -> None:
    drive = drives.parse_drive("scsi1", "shared:9/x.raw,wwn=0x5056432d49443031,ssd=yes,backup=0")
    assert drives.write_drive(drive.with_size(1 << 30)) == (
        "shared:9/x.raw,backup=0,size=1G,ssd=1,wwn=0x5056432d49443031"
    )


def test_a_network_card_is_stored_with_its_model_first() -> None:
    values = devices.read(devices.NET, "bridge=vmbr0,virtio=AA:BB:CC:00:11:22,tag=5")
    assert devices.write_net(values) == "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,tag=5"


@pytest.mark.parametrize(
    ("size", "text"),
    [(1 << 30, "1G"), (3 << 29, "1536M"), (8192, "8K"), (512, "512"), (1 << 40, "1T"), (0, "0")],
)
def test_sizes_have_the_largest_unit_that_divides(size: int, text: str) -> None:
    assert drives.size_text(size) == text


@given(st.integers(min_value=0, max_value=1 << 50))
def test_a_size_is_parsed_as_written(size: int) -> None:
    assert drives.parse_size(drives.size_text(size)) == size


OPTIONS = {
    "discard": st.sampled_from(["on", "ignore"]),
    "backup": st.sampled_from(["0", "1"]),
    "iops_rd": st.integers(1, 9999).map(str),
    "mbps_wr": st.sampled_from(["10", "20.5"]),
    "cache": st.sampled_from(["none", "writeback"]),
    "serial": st.from_regex(r"[a-z0-9-]{1,20}", fullmatch=True),
}


@given(st.fixed_dictionaries({}, optional=OPTIONS))
def test_a_drive_is_parsed_as_written(options: dict[str, str]) -> None:
    drive = drives.Drive("scsi3", "shared:100/vm-100-disk-0.raw", options)
    assert drives.parse_drive("scsi3", drives.write_drive(drive)) == drive


@pytest.mark.parametrize(
    ("file", "cloudinit"),
    [
        ("shared:cloudinit", True),
        ("shared:100/vm-100-cloudinit.qcow2", True),
        ("thin:vm-100-cloudinit", True),
        ("shared:100/vm-100-disk-0.qcow2", False),
        ("shared:iso/cloudinit.iso", False),
    ],
)
def test_cloud_init_drives_are_known_by_their_volume(file: str, cloudinit: bool) -> None:
    assert drives.Drive("ide2", file).is_cloudinit is cloudinit


def test_stored_blank_values() -> None:
    assert vm.stored("tags", "", 8) == " "
    assert vm.stored("affinity", "", 8) is None
    assert vm.stored("cpulimit", 1.5, 8) == "1.5"
    assert vm.stored("cores", 2, 8) == 2


def test_a_containers_card_starts_with_its_name() -> None:
    values = ct.read(ct.NET, "bridge=vmbr0,ip=dhcp,name=eth0")
    assert ct.write_mount("mp0", {"volume": "a:1", "size": "1G", "mp": "/x"}) == "a:1,mp=/x,size=1G"
    assert values["name"] == "eth0"


@given(st.sets(st.integers(0, 300), min_size=1, max_size=20))
def test_a_cpuset_is_read_as_numbers(numbers: set[int]) -> None:
    assert formats.cpus(",".join(map(str, sorted(numbers)))) == numbers
