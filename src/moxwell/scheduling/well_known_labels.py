"""
Labels that Karpenter knows, renames or forbids. Pure.

A provider adds its own well-known labels (instance family, reservation) by making another
:class:`LabelRules`.
"""

from dataclasses import dataclass, field

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
WINDOWS_BUILD = "node.kubernetes.io/windows-build"
GROUP = "karpenter.sh"
NODE_POOL = "karpenter.sh/nodepool"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
REGISTERED = "karpenter.sh/registered"
INITIALIZED = "karpenter.sh/initialized"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"

SPOT = "spot"
ON_DEMAND = "on-demand"
RESERVED = "reserved"

KARPENTER_LABELS = frozenset(
    {NODE_POOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD}
)
_RENAMED = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
}


_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture(machine: str) -> str:
    """The ``kubernetes.io/arch`` of what ``uname -m`` prints, or of ``arch`` of a guest."""
    return _ARCHITECTURES.get(machine, machine)


def normalized(key: str) -> str:
    """The stable name of a label whose beta name is still in use."""
    return _RENAMED.get(key, key)


@dataclass(frozen=True, slots=True)
class LabelRules:
    """The well-known labels of a provider."""

    well_known: frozenset[str] = KARPENTER_LABELS
    reservation: str = ""
    restricted_domains: frozenset[str] = field(default=frozenset({GROUP}))
    restricted: frozenset[str] = field(default=frozenset({HOSTNAME}))

    def refusal(self, key: str) -> str:
        """Why a pod or NodePool must not use the label; empty if it may."""
        if key in self.well_known:
            return ""
        domain = key.partition("/")[0] if "/" in key else ""
        reserved = any(domain == d or domain.endswith(f".{d}") for d in self.restricted_domains)
        if not reserved and key not in self.restricted:
            return ""
        known, domains = sorted(self.well_known), sorted(self.restricted_domains)
        return (
            f"using label {key} is not allowed as it might interfere with the internal "
            f"provisioning logic; specify a well known label: [{' '.join(known)}], or a custom "
            f"label that does not use a restricted domain: [{' '.join(domains)}]"
        )
