"""Warnings of a plan: what it does to the spread of machines, and to nodes. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.diff import NodeGroupChange
from moxwell.plan.report import MachineChange


def spread_warnings(
    groups: Iterable[NodeGroupChange], machines: Sequence[MachineChange]
) -> Iterator[str]:
    """Groups that are spread less evenly over regions after a rollout than before."""
    for group in groups:
        rows = [m for m in machines if m.group == group.name and m.region]
        before = Counter(m.region for m in rows if m.action == "delete")
        after = Counter(m.region for m in rows if m.action == "create")
        if group.rolls and after and _is_worse(before, after):
            yield (
                f"{group.name}: the rollout changes the spread over regions from "
                f"{_shown(before)} to {_shown(after)}"
            )


def _is_worse(before: "Counter[str]", after: "Counter[str]") -> bool:
    regions = {*before, *after}
    if len(regions) < 2 or not before:
        return False
    return _unevenness(after, regions) > max(1, _unevenness(before, regions))


def _unevenness(found: "Counter[str]", regions: Iterable[str]) -> int:
    counts = [found[region] for region in regions]
    return max(counts) - min(counts)


def _shown(found: "Counter[str]") -> str:
    return ", ".join(f"{count} in {region}" for region, count in sorted(found.items()))


def network_warnings(
    cluster: str, groups: Iterable[NodeGroupChange], before: Defaults, after: Defaults
) -> Iterator[str]:
    """A change of a tenant's network that replaces nodes of a cluster."""
    rolling = [group for group in groups if group.rolls and group.deleted]
    if not rolling:
        return
    firewall = before.firewall_group != after.firewall_group
    bridge = before.bridge != after.bridge
    what = " and ".join(
        name for name, differs in (("firewall", firewall), ("bridge", bridge)) if differs
    )
    count = sum(group.deleted for group in rolling)
    names = ", ".join(group.name for group in rolling)
    nodes = "1 node" if count == 1 else f"{count} nodes"
    yield (
        f"cluster {cluster}: the change of the tenant's {what or 'network'} replaces {nodes} "
        f"({names}), because network devices of running guests are not changed"
    )
