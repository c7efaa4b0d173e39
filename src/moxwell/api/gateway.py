"""
ReferenceGrant of the Gateway API: the owner of a namespace allows references into it.

Only the part that Moxwell reads: from a ProxmoxCluster to a Secret with its credentials.
"""

from msgspec import field

from moxwell.api.kinds import Column, Object, kind
from moxwell.api.meta import Value

GROUP = "gateway.networking.k8s.io"


class ReferenceGrantFrom(Value, frozen=True, kw_only=True):
    """The kind and namespace of objects that may refer."""

    group: str
    kind: str
    namespace: str


class ReferenceGrantTo(Value, frozen=True, kw_only=True):
    """The objects that may be referred to: one, or without a name all of the kind."""

    group: str
    kind: str
    name: str | None = None


class ReferenceGrantSpec(Value, frozen=True, kw_only=True):
    """Who may refer to what in the namespace of the grant."""

    sources: tuple[ReferenceGrantFrom, ...] = field(name="from", default=())
    to: tuple[ReferenceGrantTo, ...] = ()


@kind(
    group=GROUP,
    version="v1beta1",
    name="ReferenceGrant",
    plural="referencegrants",
    columns=(Column("Age", ".metadata.creationTimestamp", "date"),),
)
class ReferenceGrant(Object, frozen=True, kw_only=True):
    """Allows references from other namespaces to objects of its own namespace."""

    spec: ReferenceGrantSpec = field(default_factory=ReferenceGrantSpec)


KINDS: tuple[type[Object], ...] = (ReferenceGrant,)
