"""Guest sizes, the instance-types file, and offerings on hosts."""

import json

import pytest

from moxwell.scheduling.guest_offerings import (
    FAMILY,
    fine_sizes,
    fitted_sizes,
    instance_types,
)
from moxwell.scheduling.guest_sizes import (
    InvalidInstanceTypes,
    family_sizes,
    make_size,
    read_sizes,
)
from moxwell.scheduling.host_room import HostRoom
from moxwell.scheduling.inventory_model import GIB, HostKey
from moxwell.scheduling.resource_lists import CPU, MEMORY, PODS


def room(name: str, cpus: int, gib: int, *, disk: int = 500, online: bool = True) -> HostRoom:
    return HostRoom(HostKey("r1", name), cpus, gib * GIB, disk * GIB, online)


def test_families_are_those_of_the_provider() -> None:
    names = [size.name for size in family_sizes()]
    assert len(names) == 25
    assert names[:5] == ["c1.1VCPU-2GB", "t1.1VCPU-3GB", "s1.1VCPU-4GB", "m1.1VCPU-8GB",
                         "x1.1VCPU-16GB"]  # fmt: skip
    assert names[-1] == "x1.16VCPU-256GB"


OVERHEADS = [
    # cpus, GiB, CPU and MiB that the kubelet reserves, pods
    (1, 1, 20, 128, 32),
    (1, 2, 20, 192, 64),
    (2, 4, 50, 256, 110),
    (4, 8, 100, 384, 110),
]


@pytest.mark.parametrize(("cpus", "gib", "milli", "mib", "pods"), OVERHEADS)
def test_overhead_grows_with_the_size(cpus: int, gib: int, milli: int, mib: int, pods: int) -> None:
    size = make_size(cpus, gib * GIB, "s1")
    assert size.overhead.kube == {CPU: milli, MEMORY: mib * 2**20 * 1000}
    assert size.overhead.all[MEMORY] == (mib + 64 + 100) * 2**20 * 1000
    assert size.capacity[PODS] == pods * 1000


def test_the_price_is_that_of_the_provider() -> None:
    assert make_size(2, 8 * GIB, "s1").price == pytest.approx(0.05 + 0.001 * 8 * GIB / 10**9)
    text = json.dumps([{"name": "a.b", "capacity": {"cpu": 2, "memory": "8Gi", "pods": 5},
                        "capacitytype": "spot"}])  # fmt: skip
    (spot,) = read_sizes(text)
    assert spot.price == pytest.approx(make_size(2, 8 * GIB, "s1").price / 2)


REFUSED = [
    ("{", "Expected `array`"),
    ('[{"name": "a", "capacity": {"cpu": "x", "memory": "1Gi", "pods": 1}}]', r"\[0\] 'a'"),
    ('[{"name": "a", "capacity": {"cpu": 1, "pods": 1}}]', "set capacity.memory above zero"),
    ('[{"name": "a", "capacity": {"cpu": 1, "memory": "1Gi", "pods": 1}, "overhead": '
     '{"KubeReserved": {"memory": "2Gi"}}}]', "overhead takes all of its memory"),
    ('[{"name": "a", "capasity": {}}]', "capasity|capacity"),
    ('[{"name": "a", "capacity": {"cpu": 1, "memory": "1Gi", "pods": 1}, "capacitytype": "x"}]',
     "capacitytype"),
    ('[{"name": "a", "capacity": {"cpu": 1, "memory": "1Gi", "pods": 1}}, '
     '{"name": "a", "capacity": {"cpu": 1, "memory": "1Gi", "pods": 1}}]', "occurs twice"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_file_with_a_mistake_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInstanceTypes, match=message):
        read_sizes(text)


def test_an_offering_is_available_where_a_host_has_room() -> None:
    rooms = [room("b", 4, 64), room("a", 64, 8), room("c", 64, 512, online=False)]
    (large,) = instance_types([make_size(4, 16 * GIB, "s1")], rooms)
    assert [(o.zone, o.available) for o in large.offerings] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]
    zones = next(r for r in large.requirements if r.key.endswith("/zone"))
    assert zones.values == {"a", "b", "c"}
    assert next(r for r in large.requirements if r.key == FAMILY).values == {"s1"}


def test_a_size_without_disk_space_is_not_offered() -> None:
    (found,) = instance_types([make_size(1, GIB, "s1")], [room("a", 4, 4, disk=10)])
    assert not found.offerings[0].available


def test_a_blocked_offering_is_not_available() -> None:
    size = make_size(1, GIB, "s1")
    (found,) = instance_types([size], [room("a", 4, 4), room("b", 4, 4)],
                              {(size.name, HostKey("r1", "a"))})  # fmt: skip
    assert [o.available for o in found.offerings] == [False, True]


def test_fitted_sizes_use_what_hosts_have_free() -> None:
    names = [size.name for size in fitted_sizes([room("a", 12, 50), room("b", 1, 3)])]
    assert names == ["f1.1VCPU-3GB", "f1.3VCPU-12GB", "f1.6VCPU-25GB", "f1.12VCPU-50GB"]


def test_fine_sizes_do_not_depend_on_what_is_free() -> None:
    names = [size.name for size in fine_sizes()]
    assert len(names) == len(set(names)) == 192
    assert {"f1.5VCPU-15GB", "f1.1VCPU-1GB", "f1.32VCPU-256GB"} <= set(names)


def test_the_file_of_the_provider_is_read() -> None:
    text = json.dumps(
        [{"name": "c1.1VCPU-2GB",
          "capacity": {"cpu": "1", "ephemeral-storage": "30Gi", "memory": "2Gi", "pods": "64"},
          "overhead": {"KubeReserved": {"cpu": "20m", "memory": "384Mi"}, "SystemReserved": None,
                       "EvictionThreshold": None}}]
    )  # fmt: skip
    (size,) = read_sizes(text)
    assert (size.cpus, size.memory_bytes, size.disk_bytes) == (1, 2 * GIB, 30 * GIB)
    assert size.overhead.all == {CPU: 20, MEMORY: 384 * 2**20 * 1000}
