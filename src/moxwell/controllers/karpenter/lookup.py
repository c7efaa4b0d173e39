"""Which nodes, node claims and pods belong together, from the caches of the scaled cluster."""

from collections.abc import Iterable
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.api.core.pods import Pod
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.runtime.cache import Cache
from moxwell.runtime.caches import Caches
from moxwell.runtime.index import by_field, by_label, by_provider_id
from moxwell.runtime.key import Key
from moxwell.scheduling.well_known_labels import NODE_POOL

PROVIDER_ID = "provider_id"
NODE_NAME = "node_name"
POOL = "pool"


class ClaimLookup:
    """Finds nodes, node claims and pods by the provider ID, the node name and the pool."""

    def __init__(self, caches: Caches) -> None:
        self.nodes: Cache[Node] = caches.of(
            Node, {PROVIDER_ID: by_provider_id, POOL: by_label(NODE_POOL)}
        )
        self.claims: Cache[NodeClaim] = caches.of(
            NodeClaim,
            {
                PROVIDER_ID: by_field("status.providerID"),
                NODE_NAME: by_field("status.nodeName"),
                POOL: by_label(NODE_POOL),
            },
        )
        self.pools: Cache[NodePool] = caches.of(NodePool)
        self._pods: Cache[Pod] = caches.of(Pod, {NODE_NAME: by_field("spec.nodeName")})

    def nodes_of(self, provider_id: str) -> tuple[Node, ...]:
        """The nodes with a provider ID; more than one is a mistake."""
        return self.nodes.by(PROVIDER_ID, provider_id) if provider_id else ()

    def claim_of(self, node: Node) -> NodeClaim | None:
        """The node claim of a node; None if there is none or more than one."""
        provider_id = node.spec.provider_id
        found = self.claims.by(PROVIDER_ID, provider_id) if provider_id else ()
        return found[0] if len(found) == 1 else None

    def pool_of(self, claim: NodeClaim) -> NodePool | None:
        """The node pool that a node claim belongs to."""
        return self.pools.find(Key("", claim.metadata.labels.get(NODE_POOL, "")))

    def nodes_in(self, pool: str) -> tuple[Node, ...]:
        """The nodes of a pool."""
        return self.nodes.by(POOL, pool)

    def claims_in(self, pool: str) -> tuple[NodeClaim, ...]:
        """The node claims of a pool."""
        return self.claims.by(POOL, pool)

    def pods_on(self, node_name: str) -> tuple[Pod, ...]:
        """The pods that are bound to a node."""
        return self._pods.by(NODE_NAME, node_name) if node_name else ()

    # ---- keys that a change enqueues

    def claim_keys_of_node(self, node: Node) -> Iterable[Key]:
        """The keys of the node claims of a node."""
        provider_id = node.spec.provider_id
        found = self.claims.by(PROVIDER_ID, provider_id) if provider_id else ()
        return [Key("", claim.metadata.name) for claim in found]

    def claim_keys_of_pod(self, pod: Pod) -> Iterable[Key]:
        """The keys of the node claims of the node that runs a pod."""
        if not pod.spec.node_name:
            return []
        found = self.claims.by(NODE_NAME, pod.spec.node_name)
        return [Key("", claim.metadata.name) for claim in found]

    def claim_keys_of_pool(self, pool: NodePool) -> Iterable[Key]:
        """The keys of the node claims of a pool."""
        return [Key("", c.metadata.name) for c in self.claims_in(pool.metadata.name)]


def node_key_of_pod(pod: Pod) -> Iterable[Key]:
    """The key of the node that runs a pod."""
    return [Key("", pod.spec.node_name)] if pod.spec.node_name else []


def node_key_of_claim(claim: NodeClaim) -> Iterable[Key]:
    """The key of the node of a node claim."""
    return [Key("", claim.status.node_name)] if claim.status.node_name else []


def node_key_of_attachment(attachment: Any) -> Iterable[Key]:
    """The key of the node that a volume is attached to."""
    return [Key("", attachment.spec.node_name)]
