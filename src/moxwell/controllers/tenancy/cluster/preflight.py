"""Checks before the nodes of a tenant cluster are made: its regions and its addresses."""

from collections import Counter
from collections.abc import Iterable

from moxwell.api.capi.core import Machine
from moxwell.api.cozystack import Kubernetes
from moxwell.api.ipam import GlobalInClusterIPPool, IPAddress
from moxwell.controllers.tenancy.cluster import preflight_needs
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.naming import GROUP_LABEL
from moxwell.kube.reader import Reader
from moxwell.preflight import probe
from moxwell.preflight.addresses import AddressPlan, check_addresses
from moxwell.preflight.outcome import CheckLevel, RegionCheck
from moxwell.preflight.probe import Connects
from moxwell.preflight.service import Preflight, of_cluster


class ClusterPreflight:
    """
    Runs the checks of tenant clusters.

    ``addresses`` are those of control planes; ``connect`` tries whether an address answers.
    """

    def __init__(
        self,
        preflight: Preflight,
        addresses: Iterable[str] = (),
        connect: Connects | None = None,
    ) -> None:
        self._preflight, self._connect = preflight, connect
        self._addresses = tuple(addresses)

    async def check(
        self,
        app: Kubernetes,
        defaults: Defaults,
        reader: Reader,
        machines: Iterable[Machine] = (),
        *,
        fresh: bool = False,
    ) -> tuple[RegionCheck, ...]:
        """All checks; with ``fresh`` also whether addresses answer already."""
        existing = Counter(m.metadata.labels.get(GROUP_LABEL, "") for m in machines)
        needs = preflight_needs.needs_of(app, defaults, existing)
        found = of_cluster(await self._preflight.check(needs, fresh=fresh))
        return (*found, *await self._check_addresses(app, reader, fresh=fresh))

    async def _check_addresses(
        self, app: Kubernetes, reader: Reader, *, fresh: bool
    ) -> tuple[RegionCheck, ...]:
        own = preflight_needs.address_plan(app)
        if own is None:
            return ()
        others = [preflight_needs.address_plan(o) for o in (await reader.list(Kubernetes)).items
                  if (o.namespace, o.name) != (app.namespace, app.name)]  # fmt: skip
        pools = (await reader.list(GlobalInClusterIPPool)).items
        plans = [own, *(o for o in others if o), *map(preflight_needs.pool_plan, pools)]
        reserved = preflight_needs.reserved_networks(self._addresses)
        found = check_addresses(plans, reserved, await self._taken(own, reader) if fresh else {})
        return tuple(c for c in found if c.level is CheckLevel.PASS or own.name in c.what)

    async def _taken(self, own: AddressPlan, reader: Reader) -> dict[str, tuple[str, ...]]:
        """The addresses of the cluster that answer and that no node has."""
        known = frozenset(a.spec.address for a in (await reader.list(IPAddress)).items)
        taken = await probe.answering(own.ranges(), known, attempt=self._connect)
        return {own.name: taken}
