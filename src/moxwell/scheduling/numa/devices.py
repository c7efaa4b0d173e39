"""PCI devices that a guest gets from its host, and the NUMA nodes near them. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from moxwell.scheduling.numa.topology import HostTopology

Addresses = Mapping[str, frozenset[str]]  # of the devices of one host, by resource mapping


def near_nodes(
    topology: HostTopology, values: Iterable[str], mapped: Addresses
) -> tuple[frozenset[int], ...]:
    """
    The NUMA nodes of each device of ``hostpciN`` values, on one host.

    A mapping may have several devices on a host, of which Proxmox takes one. Devices whose node is
    unknown are left out.
    """
    found = (frozenset(_nodes(topology, addresses_of(value, mapped))) for value in values)
    return tuple(nodes for nodes in found if nodes)


def addresses_of(value: str, mapped: Addresses) -> frozenset[str]:
    """The PCI addresses that a ``hostpciN`` value means on a host."""
    first, _, _ = value.partition(",")
    options = dict(part.partition("=")[::2] for part in value.split(",") if "=" in part)
    if mapping := options.get("mapping"):
        return mapped.get(mapping, frozenset())
    return split_addresses(options.get("host", "") or ("" if "=" in first else first))


def split_addresses(text: str) -> frozenset[str]:
    """Full addresses of ``01:00.0;01:00.1``; without a function all of the device are meant."""
    return frozenset(
        each if each.count(":") > 1 else f"0000:{each}" for each in text.split(";") if each
    )


def _nodes(topology: HostTopology, addresses: frozenset[str]) -> Iterator[int]:
    numbers = {node.number for node in topology.nodes}
    for device, node in topology.devices.items():
        if node in numbers and any(
            device == each or device.startswith(f"{each}.") for each in addresses
        ):
            yield node
