"""
Runs the autoscaler for tenant clusters in this process, with a client of each tenant's API.

Node pools, node claims and node classes are objects of the tenant; machines are objects of the
management cluster. A tenant gets the CRDs, but no Proxmox credentials.
"""

from collections.abc import Callable, Mapping
from typing import Any

from moxwell.api import registry
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Resource
from moxwell.app.decision_workers import DecisionWorkers
from moxwell.app.embedded_api import CRDS
from moxwell.app.tenant_quota import TenantQuota
from moxwell.clock import Clock
from moxwell.controllers.karpenter.default_pool import default_objects, node_limit
from moxwell.controllers.karpenter.disruption.controller import DisruptionInsight
from moxwell.controllers.karpenter.options import AutoscalerConfig, AutoscalerOptions
from moxwell.controllers.karpenter.proxmox.catalogue import CatalogueSettings
from moxwell.controllers.karpenter.proxmox.scope import MachineDefaults
from moxwell.controllers.karpenter.proxmox.setup import ManagementSide, add_provider
from moxwell.controllers.karpenter.setup import (
    Autoscaler,
    AutoscalerSettings,
    add_autoscaler,
)
from moxwell.controllers.tenancy.cluster.defaults import Defaults, version_of
from moxwell.controllers.tenancy.cluster.node_groups import autoscaled_machine_spec
from moxwell.controllers.tenancy.cluster.see import NAMESPACES, defaults_in
from moxwell.errors import Invalid, Missing
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime

INSTALL = "karpenter.install"
CHECK_SECONDS = 60.0
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
HOSTED = AutoscalerOptions(max_batch_pods=5_000)  # the defaults of tenants, which share a process
DONE = "moxwell-default-node-pool"  # the ConfigMap that records the creation


class TenantAutoscaler:
    """Adds the autoscaler to tenant runtimes; one object per process."""

    def __init__(
        self,
        side: ManagementSide,
        clock: Clock,
        defaults: Callable[[], Defaults],
        config: AutoscalerConfig | None = None,
        workers: DecisionWorkers | None = None,
        catalogue: CatalogueSettings | None = None,
    ) -> None:
        """
        ``defaults`` are those of tenant clusters, ``catalogue`` the sizes they are offered;
        ``workers`` compute all decisions.
        """
        self._side, self._clock, self._defaults = side, clock, defaults
        self._config, self._workers = config or AutoscalerConfig(HOSTED), workers
        self._catalogue = catalogue
        self._running: dict[Key, Autoscaler] = {}
        caches = side.runtime.manager.caches
        self._apps: Cache[Kubernetes] = caches.of(Kubernetes)
        self._namespaces: Cache[Any] = caches.of(NAMESPACES)
        self._quota = TenantQuota(self._namespaces, caches.of(ProxmoxMachine))

    def add(self, tenant: Runtime, cluster: Key) -> None:
        """Add the provider, the autoscaler and the installation of the CRDs."""
        provider = add_provider(
            self._side,
            tenant,
            cluster,
            defaults=lambda: self.machine_defaults(cluster),
            settings=self._catalogue,
        )
        running = add_autoscaler(
            tenant,
            self._clock,
            provider,
            AutoscalerSettings.of(self._config.of(str(cluster))),
            decisions=self._workers.of(cluster) if self._workers is not None else None,
            quota=lambda view: self._quota.left(cluster, view),
        )
        self._running[cluster] = running
        tenant.manager.on_exit(lambda: self._forget(cluster, running))
        tenant.manager.add_loop(INSTALL, lambda: self._install(tenant.kube, cluster), shard="")

    def _forget(self, cluster: Key, running: Autoscaler) -> None:
        if self._running.get(cluster) is running:
            del self._running[cluster]

    def insight(self, cluster: Key) -> DisruptionInsight:
        """The last findings of a cluster's autoscaler about its nodes."""
        found = self._running.get(cluster)
        return found.disruption.insight if found is not None else DisruptionInsight()

    async def explain(self, query: Mapping[str, Any]) -> Any:
        """The action of the daemon that explains a pod: ``cluster`` and ``pod`` are keys."""
        cluster, pod = _key(query, "cluster"), _key(query, "pod")
        running = self._running.get(cluster)
        if running is None:
            raise Missing(f"no autoscaler runs for the cluster {cluster}")
        found = await running.provisioner.explain(pod)
        return {"sentence": found.sentence, "details": list(found.details)}

    def machine_defaults(self, cluster: Key) -> MachineDefaults:
        """What the tenant's node groups have too: network, firewall group, storage, version."""
        app = self._apps.find(cluster)
        if app is None:
            return MachineDefaults()
        own = self._own_defaults(cluster.namespace)
        return MachineDefaults(autoscaled_machine_spec(app, own), version_of(app, own))

    def _own_defaults(self, namespace: str) -> Defaults:
        found = self._namespaces.find(Key("", namespace))
        return defaults_in((found or {}).get("metadata") or {}, self._defaults())

    async def _install(self, kube: Kube, cluster: Key) -> None:
        """Install the CRDs, then the default node pool if the cluster requests it."""
        for crd in registry.make_karpenter_crds():
            await kube.apply(crd, CRDS, force=True)
        while not await self._has_default_pool(kube, cluster):
            await self._clock.sleep(CHECK_SECONDS)

    async def _has_default_pool(self, kube: Kube, cluster: Key) -> bool:
        """Create the default node pool; once, so that a user can delete it."""
        app = self._apps.find(cluster)
        limit = node_limit(dict(app.metadata.annotations)) if app is not None else None
        if app is None or limit is None:
            return False
        if await kube.find(CONFIG_MAPS, DONE, "kube-system") is not None:
            return True
        version = version_of(app, self._own_defaults(cluster.namespace))
        for body, resource in (*default_objects(version, limit), (_done(), CONFIG_MAPS)):
            try:
                await kube.create(body, resource)
            except AlreadyExists:
                continue
        return True


def _key(query: Mapping[str, Any], name: str) -> Key:
    namespace, _, rest = str(query.get(name, "")).partition("/")
    if not rest:
        raise Invalid(f"the parameter {name}=NAMESPACE/NAME is missing")
    return Key(namespace, rest)


def _done() -> dict[str, Any]:
    meta = {"name": DONE, "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"created": "true"}}
