"""Which address and port a hosted control plane listens on."""

import socket
from pathlib import Path

import pytest

from moxwell.api.infra.address_ranges import parse_address_ranges
from moxwell.cli.doctor import check_control_plane_address
from moxwell.config_file import InvalidConfig
from moxwell.embedded import ports
from moxwell.embedded.controlplanes import addresses
from moxwell.embedded.controlplanes.addresses import (
    AddressesExhausted,
    ControlPlaneAddresses,
    TenantAddresses,
)
from moxwell.embedded.ports import AddressMissing, PortTaken, free_port, https_url, is_free

UNKNOWN = "192.0.2.1"  # of a network for documentation, which no machine has


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", ControlPlaneAddresses(), id="nothing is configured"),
        pytest.param(
            "control_planes: {address: 10.0.0.5}",
            ControlPlaneAddresses(address="10.0.0.5"),
            id="one address for all",
        ),
        pytest.param(
            "control_planes: {address: 'fd00::5', ports: 7000-7009}",
            ControlPlaneAddresses(address="fd00::5", ports=(7000, 7010)),
            id="an IPv6 address and a range of ports",
        ),
        pytest.param(
            "control_planes: {addresses: [10.0.0.5, 10.0.0.8-10.0.0.9]}",
            ControlPlaneAddresses(ranges=parse_address_ranges(["10.0.0.5", "10.0.0.8-10.0.0.9"])),
            id="an address for each",
        ),
    ],
)
def test_the_configuration(text: str, expected: ControlPlaneAddresses) -> None:
    assert addresses.parse(text) == expected


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("5", "must be a mapping"),
        ("{adress: 10.0.0.5}", "unknown adress"),
        ("{address: pve1.example}", "must be an IP address"),
        ("{address: 0.0.0.0}", "not an address that nodes can connect to"),
        ("{address: 224.0.0.1}", "not an address that nodes can connect to"),
        ("{address: 10.0.0.5, addresses: [10.0.0.6]}", "not both"),
        ("{addresses: 10.0.0.5}", "must be a list"),
        ("{addresses: []}", "must be a list"),
        ("{addresses: [10.0.0.9-10.0.0.1]}", "end is before its start"),
        ("{address: 10.0.0.5, ports: 6443}", "must be a range"),
        ("{address: 10.0.0.5, ports: 90-80}", "must be a range"),
        ("{address: 10.0.0.5, ports: 0-70000}", "must be a range"),
    ],
)
def test_a_wrong_configuration(section: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        addresses.parse(f"control_planes: {section}")


def configured(*ranges: str) -> ControlPlaneAddresses:
    return ControlPlaneAddresses(ranges=parse_address_ranges(ranges))


def test_each_tenant_keeps_an_address_of_its_own(tmp_path: Path) -> None:
    roots = (tmp_path / "embedded", tmp_path / "binaries")
    one, two, three = (roots[n % 2] / "team" / f"c{n}" for n in range(3))
    tenants = TenantAddresses(configured("127.0.0.2-127.0.0.3"), roots)
    assert [tenants.host(one), tenants.host(two)] == ["127.0.0.2", "127.0.0.3"]
    assert tenants.host(one) == "127.0.0.2"
    with pytest.raises(AddressesExhausted, match="each address"):
        tenants.host(three)
    assert not three.exists()
    changed = TenantAddresses(configured("127.0.0.3", "127.0.0.4-127.0.0.9"), roots)
    assert changed.host(two) == "127.0.0.3"  # still configured
    assert changed.host(one) == "127.0.0.4"
    shared = TenantAddresses(ControlPlaneAddresses(address="127.0.0.5"), roots)
    assert [shared.host(one), shared.host(two)] == ["127.0.0.5", "127.0.0.5"]


def test_a_tenant_with_its_own_address_gets_the_usual_port() -> None:
    found = configured("127.0.0.64/28")
    free = next(host for host in ("127.0.0.70", "127.0.0.71") if is_free(6443, host))
    assert found.new_port(free) == 6443
    with socket.socket() as other:
        other.bind((free, 6443))
        other.listen()
        assert found.new_port(free) != 6443
    assert found.new_port("127.0.0.1") in range(*ports.PORT_RANGE)


def test_a_range_without_a_free_port() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.6", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=f"no port of {port}-{port}"):
            free_port("127.0.0.6", (port, port + 1))


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(AddressMissing, match=f"ip address add {UNKNOWN}/32"):
        ControlPlaneAddresses(address=UNKNOWN).check()
    with pytest.raises(AddressMissing):
        free_port(UNKNOWN)
    ControlPlaneAddresses(address="127.0.0.9").check()


@pytest.mark.parametrize(
    ("host", "url"), [("10.0.0.1", "https://10.0.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")]
)
def test_the_url_of_an_address(host: str, url: str) -> None:
    assert https_url(host, 6443) == url


@pytest.mark.parametrize(
    ("found", "url", "expected"),
    [
        (ControlPlaneAddresses(), "https://127.0.0.1:8006", []),
        (ControlPlaneAddresses(), "https://pve1:8006", ["remark"]),
        (ControlPlaneAddresses(address="10.0.0.5"), "https://pve1:8006", ["ok"]),
        (configured("10.0.0.5-10.0.0.9"), "https://pve1:8006", ["ok"]),
    ],
)
def test_the_doctor_knows_addresses_that_nodes_cannot_reach(
    found: ControlPlaneAddresses, url: str, expected: list[str]
) -> None:
    assert [f.level for f in check_control_plane_address(found, [url])] == expected
