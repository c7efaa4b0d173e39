"""PCI devices of guests: what they mean on a host, and guests near them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.scheduling.numa import sources
from moxwell.scheduling.numa.devices import addresses_of, near_nodes
from moxwell.scheduling.numa.guests import GuestCpuUse
from moxwell.scheduling.numa.placement import GuestShape, NumaPlacement, place
from moxwell.scheduling.numa.topology import HostTopology

DEVICES = {"0000:01:00.0": 0, "0000:41:00.0": 1, "0000:41:00.1": 1, "0000:81:00.0": 7}
MAPPED = {
    "gpu": frozenset({"0000:41:00.0"}),
    "either": frozenset({"0000:01:00.0", "0000:41:00.0"}),
    "unknown": frozenset({"0000:99:00.0"}),
}
ONLY = frozenset


def host(sockets: int = 2, devices: Mapping[str, int] = DEVICES) -> HostTopology:
    found = sources.guess(sockets=sockets, cores=16, cpus=32, memory_mib=65536)
    return replace(found, devices=devices)


@pytest.mark.parametrize(
    "value, want",
    [
        ("mapping=gpu,pcie=1", {"0000:41:00.0"}),
        ("mapping=gone", set()),
        ("0000:41:00.0,pcie=1", {"0000:41:00.0"}),
        ("host=41:00,pcie=1", {"0000:41:00"}),
        ("01:00.0;01:00.1", {"0000:01:00.0", "0000:01:00.1"}),
        ("", set()),
    ],
)
def test_what_a_device_means_on_a_host(value: str, want: set[str]) -> None:
    assert addresses_of(value, MAPPED) == want


@pytest.mark.parametrize(
    "values, want",
    [
        (["mapping=gpu"], (ONLY({1}),)),
        (["mapping=either", "01:00.0"], (ONLY({0, 1}), ONLY({0}))),
        (["41:00"], (ONLY({1}),)),
        (["41:0"], ()),  # the beginning of an address is none
        (["mapping=unknown"], ()),
        (["81:00.0"], ()),  # the host has no NUMA node 7
        ([], ()),
    ],
)
def test_the_nodes_near_devices(values: Sequence[str], want: tuple[frozenset[int], ...]) -> None:
    assert near_nodes(host(), values, MAPPED) == want


def hosts_of(found: object) -> set[int]:
    assert isinstance(found, NumaPlacement), found
    return {node.host for node in found.nodes}


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("node", [0, 1])
def test_a_guest_is_placed_near_its_device(node: int, pinned: bool) -> None:
    shape = GuestShape(4, 8192, pinned)
    assert hosts_of(place(host(), (), shape, near=[ONLY({node})])) == {node}


def test_the_device_matters_more_than_the_fuller_node() -> None:
    other = GuestCpuUse(4, 4096, bound={0: 4096}, bound_vcpus={0: 4})
    shape = GuestShape(4, 8192)
    assert hosts_of(place(host(), (other,), shape)) == {0}
    assert hosts_of(place(host(), (other,), shape, near=[ONLY({1})])) == {1}


def test_a_guest_goes_elsewhere_if_the_near_node_is_full_and_is_not_divided_for_it() -> None:
    full = GuestCpuUse(2, 30000, bound={1: 30000}, bound_vcpus={1: 2})
    assert hosts_of(place(host(), (full,), GuestShape(4, 8192), near=[ONLY({1})])) == {0}


def test_most_devices_count() -> None:
    near = [ONLY({0}), ONLY({1, 2}), ONLY({2})]
    assert hosts_of(place(host(sockets=4), (), GuestShape(2, 4096), near=near)) == {2}


SETS = st.lists(st.frozensets(st.integers(0, 3), min_size=1), max_size=4)


@given(SETS, st.integers(1, 20), st.integers(256, 60000), st.booleans())
def test_devices_refuse_no_guest_and_divide_none(
    near: list[frozenset[int]], vcpus: int, memory: int, pinned: bool
) -> None:
    shape, topology = GuestShape(vcpus, memory, pinned), host(sockets=4)
    plain, found = place(topology, (), shape), place(topology, (), shape, near=near)
    assert type(plain) is type(found)
    if isinstance(plain, NumaPlacement) and isinstance(found, NumaPlacement):
        assert len(plain.nodes) == len(found.nodes)
        assert _met(found, near) >= _met(plain, near)


def _met(found: NumaPlacement, near: list[frozenset[int]]) -> int:
    hosts = {node.host for node in found.nodes}
    return sum(bool(hosts & nodes) for nodes in near)
