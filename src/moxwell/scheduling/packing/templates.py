"""What a node pool offers to a new node claim: requirements, taints, types, daemon groups."""

from dataclasses import dataclass

from moxwell.scheduling.packing.cluster import ProvisioningPool, SolverOptions, by_weight
from moxwell.scheduling.packing.daemons import DaemonGroup, DaemonPods
from moxwell.scheduling.packing.resource_axis import ResourceAxis
from moxwell.scheduling.packing.type_table import TypeTable
from moxwell.scheduling.requirement_sets import RequirementAlgebra, RequirementSet
from moxwell.scheduling.well_known_labels import INITIALIZED, NODE_POOL, REGISTERED


@dataclass(frozen=True, slots=True, eq=False)
class ClaimTemplate:
    """The constant part of the node claims of a pool."""

    number: int
    pool: ProvisioningPool
    table: TypeTable
    requirements: RequirementSet
    options: int
    daemons: tuple[DaemonGroup, ...]

    @property
    def plain(self) -> bool:
        """Whether no daemon pod runs on any type."""
        return len(self.daemons) == 1 and self.daemons[0].overhead is None


def pool_requirement_set(algebra: RequirementAlgebra, pool: ProvisioningPool) -> RequirementSet:
    """Requirements and labels of a pool, and the labels that every new node gets."""
    labels = [*pool.labels, (NODE_POOL, pool.name), (REGISTERED, "true"), (INITIALIZED, "true")]
    if pool.node_class is not None:
        labels.append(pool.node_class)
    fixed = algebra.of_labels(labels)
    return algebra.of((*pool.requirements, *fixed.entries.values()))


def claim_templates(
    pools: tuple[ProvisioningPool, ...],
    axis: ResourceAxis,
    algebra: RequirementAlgebra,
    daemons: DaemonPods,
    options: SolverOptions,
) -> tuple[ClaimTemplate, ...]:
    """The templates of the pools that have a usable instance type, in the order of trial."""
    tables: dict[int, TypeTable] = {}
    found: list[ClaimTemplate] = []
    for pool in by_weight(pools):
        types = pool.instance_types
        if id(types) not in tables:
            tables[id(types)] = TypeTable(types, axis, algebra)
        table = tables[id(types)]
        requirements = pool_requirement_set(algebra, pool)
        usable = table.usable(requirements) & table.fitting(axis.zero)
        strict = not options.best_effort_min_values
        if not usable or (strict and table.missing_values(usable, requirements)):
            continue
        groups = daemons.groups(table, usable, requirements, pool.taints)
        template = ClaimTemplate(len(found), pool, table, requirements, usable, groups)
        found.append(template)
    return tuple(found)
