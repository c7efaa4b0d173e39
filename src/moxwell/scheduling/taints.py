"""Which taints a pod tolerates, by the rules of Kubernetes and Karpenter. Pure."""

import re
from collections.abc import Iterable

from moxwell.api.core.nodes import Taint
from moxwell.api.core.pods import Toleration

PREFER_NO_SCHEDULE = "PreferNoSchedule"
TOLERATE_PREFER_NO_SCHEDULE = Toleration(operator="Exists", effect=PREFER_NO_SCHEDULE)
_DECIMAL = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_EPHEMERAL = frozenset(
    {
        ("node.kubernetes.io/not-ready", "NoSchedule"),
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
        ("karpenter.sh/unregistered", "NoExecute"),
        ("node.cluster.x-k8s.io/uninitialized", "NoSchedule"),  # of Cluster API, until it syncs
    }
)
_EPHEMERAL_PREFIX = "readiness.k8s.io/"


def tolerates_taint(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint; Gt and Lt compare integers."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            return _compares(toleration, taint)
    return False


def _compares(toleration: Toleration, taint: Taint) -> bool:
    if not (_DECIMAL.fullmatch(toleration.value) and _DECIMAL.fullmatch(taint.value)):
        return False
    bound, value = int(toleration.value), int(taint.value)
    return value > bound if toleration.operator == "Gt" else value < bound


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> tuple[Taint, ...]:
    """The taints that keep a pod away, PreferNoSchedule included."""
    tolerations = tuple(tolerations)
    return tuple(t for t in taints if not any(tolerates_taint(o, t) for o in tolerations))


def same_taint(a: Taint, b: Taint) -> bool:
    """Whether two taints are the same; the value does not count."""
    return a.key == b.key and a.effect == b.effect


def is_ephemeral(taint: Taint) -> bool:
    """Whether the taint is removed while a node initializes."""
    return (taint.key, taint.effect) in _EPHEMERAL or taint.key.startswith(_EPHEMERAL_PREFIX)


def expected_taints(taints: Iterable[Taint], startup_taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """The taints that remain when a node is initialized."""
    startup = tuple(startup_taints)
    return tuple(
        t for t in taints if not is_ephemeral(t) and not any(same_taint(s, t) for s in startup)
    )


def taint_text(taint: Taint) -> str:
    """A taint as kubectl writes it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
