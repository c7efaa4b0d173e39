"""
The settings of an autoscaler that users choose, under Karpenter's names. Pure.

They come from the configuration file (``features.autoscaler``) and, in operator mode, from flags
and Karpenter's environment variables. ``clusters`` in the file has other values for single tenants.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from moxwell import config_file
from moxwell.config_file import InvalidConfig
from moxwell.scheduling.packing.cluster import SolverOptions
from moxwell.scheduling.packing.rescheduling import duration_seconds

WHERE = "features.autoscaler"
IDLE_SECONDS, MOST_SECONDS = 1.0, 10.0  # of a batch of pods
E = TypeVar("E", bound=StrEnum)


class PackingMode(StrEnum):
    """``exact`` decides as Karpenter does; ``optimise`` never costs more and often less."""

    EXACT = "exact"
    OPTIMISE = "optimise"


class PreferencePolicy(StrEnum):
    """Whether preferences of pods are tried before they are dropped."""

    RESPECT = "Respect"
    IGNORE = "Ignore"


class MinValuesPolicy(StrEnum):
    """Whether ``minValues`` of a requirement may be relaxed."""

    STRICT = "Strict"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGates:
    """
    Karpenter's feature gates.

    Objects that only a gate makes useful (overlays, buffers, static pools) work by default.
    """

    node_repair: bool = False
    reserved_capacity: bool = True
    spot_to_spot_consolidation: bool = False
    node_overlay: bool = True
    static_capacity: bool = True
    capacity_buffer: bool = True


GATES: Mapping[str, str] = {
    "".join(w.capitalize() for w in f.name.split("_")): f.name for f in fields(FeatureGates)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerOptions:
    """What a user may choose; ``max_batch_pods`` of 0 means no limit."""

    mode: PackingMode = PackingMode.OPTIMISE
    preference_policy: PreferencePolicy = PreferencePolicy.RESPECT
    min_values_policy: MinValuesPolicy = MinValuesPolicy.STRICT
    batch_idle_seconds: float = IDLE_SECONDS
    batch_max_seconds: float = MOST_SECONDS
    max_batch_pods: int = 0
    gates: FeatureGates = field(default_factory=FeatureGates)

    def with_values(self, values: Mapping[str, Any], where: str = WHERE) -> "AutoscalerOptions":
        """These options with those of a mapping instead; raises InvalidConfig."""
        config_file.refuse_unknown(where, values, _READERS)
        changes = {
            _READERS[key][0]: _READERS[key][1](self, f"{where}.{key}", value)
            for key, value in values.items()
            if value is not None
        }
        found = replace(self, **changes)
        if found.batch_idle_seconds > found.batch_max_seconds:
            raise InvalidConfig(f"{where}.batchIdleDuration is longer than batchMaxDuration")
        return found


@dataclass(frozen=True, slots=True)
class AutoscalerConfig:
    """The options of all autoscalers of a process."""

    default: AutoscalerOptions = field(default_factory=AutoscalerOptions)
    clusters: Mapping[str, AutoscalerOptions] = field(default_factory=dict)  # by namespace/name

    def of(self, cluster: str) -> AutoscalerOptions:
        """The options of the autoscaler of a cluster."""
        return self.clusters.get(cluster, self.default)


def solver_options(options: AutoscalerOptions) -> SolverOptions:
    """The options of the solver."""
    return SolverOptions(
        best_effort_min_values=options.min_values_policy is MinValuesPolicy.BEST_EFFORT,
        ignore_preferences=options.preference_policy is PreferencePolicy.IGNORE,
        reserved_capacity=options.gates.reserved_capacity,
    )


def parse_config(
    text: str,
    base: AutoscalerOptions | None = None,
    flags: Mapping[str, Any] = MappingProxyType({}),
) -> AutoscalerConfig:
    """The options in the ``features`` of a configuration file; ``flags`` replace its defaults."""
    features = config_file.parse_mapping(text).get("features") or {}
    given = dict(_mapping(WHERE, features.get("autoscaler")))
    clusters = _mapping(f"{WHERE}.clusters", given.pop("clusters", None))
    default = (base or AutoscalerOptions()).with_values(given).with_values(flags, "the flags")
    return AutoscalerConfig(
        default,
        {
            _cluster_name(name): default.with_values(
                _mapping(f"{WHERE}.clusters.{name}", values), f"{WHERE}.clusters.{name}"
            )
            for name, values in clusters.items()
        },
    )


def _cluster_name(name: str) -> str:
    if str(name).count("/") != 1:
        raise InvalidConfig(f"{WHERE}.clusters: a cluster is given as namespace/name, not {name!r}")
    return str(name)


def _mapping(where: str, value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidConfig(f"{where} must be a mapping")
    return value


def _choice(kind: type[E]) -> Any:
    def read(_: AutoscalerOptions, where: str, value: object) -> E:
        try:
            return kind(str(value))
        except ValueError:
            names = ", ".join(each.value for each in kind)
            raise InvalidConfig(f"{where} must be one of {names}") from None

    return read


def _duration(_: AutoscalerOptions, where: str, value: object) -> float:
    seconds = duration_seconds(str(value))
    if seconds is None or seconds <= 0:
        raise InvalidConfig(f"{where} must be a positive duration such as 10s")
    return seconds


def _count(_: AutoscalerOptions, where: str, value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal():
        raise InvalidConfig(f"{where} must be a number of pods, 0 for no limit")
    return int(text)


def _gates(options: AutoscalerOptions, where: str, value: object) -> FeatureGates:
    """Gates as a mapping, spelled as in Karpenter or its chart, or as ``Name=true,Name=false``."""
    pairs = value if isinstance(value, Mapping) else _gate_pairs(where, str(value))
    changes = {}
    for name, on in pairs.items():
        gate = GATES.get(f"{str(name)[:1].upper()}{str(name)[1:]}")
        if gate is None:
            raise InvalidConfig(f"{where}: unknown {name}; known are {', '.join(sorted(GATES))}")
        changes[gate] = config_file.parse_flag(f"{where}.{name}", on)
    return replace(options.gates, **changes)


def _gate_pairs(where: str, text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise InvalidConfig(f"{where}: {part!r} must be Name=true or Name=false")
        found[name.strip()] = value.strip()
    return found


_READERS: Mapping[str, tuple[str, Any]] = {
    "mode": ("mode", _choice(PackingMode)),
    "preferencePolicy": ("preference_policy", _choice(PreferencePolicy)),
    "minValuesPolicy": ("min_values_policy", _choice(MinValuesPolicy)),
    "batchIdleDuration": ("batch_idle_seconds", _duration),
    "batchMaxDuration": ("batch_max_seconds", _duration),
    "maxBatchPods": ("max_batch_pods", _count),
    "featureGates": ("gates", _gates),
}
