"""The settings of the autoscaler, from the configuration file and from flags."""

from typing import Any

import pytest

from moxwell.config_file import InvalidConfig
from moxwell.controllers.karpenter.options import (
    AutoscalerOptions,
    FeatureGates,
    MinValuesPolicy,
    PackingMode,
    PreferencePolicy,
    parse_config,
)
from moxwell.controllers.karpenter.setup import AutoscalerSettings

FILE = """
features:
  autoscaler:
    preferencePolicy: Ignore
    batchMaxDuration: 20s
    featureGates: {nodeRepair: true}
    clusters:
      tenant-a/one: {mode: exact, maxBatchPods: 100, featureGates: {NodeOverlay: false}}
"""


def test_defaults_are_those_of_karpenter_with_its_optional_objects_enabled() -> None:
    given = parse_config("").of("tenant-a/one")
    assert given == AutoscalerOptions()
    assert (given.mode, given.batch_idle_seconds, given.batch_max_seconds) == ("optimise", 1, 10)
    assert given.gates == FeatureGates(
        node_repair=False, spot_to_spot_consolidation=False, reserved_capacity=True
    )


def test_a_cluster_has_values_of_its_own_over_those_of_the_file() -> None:
    config = parse_config(FILE)
    other, one = config.of("tenant-a/two"), config.of("tenant-a/one")
    assert (other.mode, other.preference_policy) == (PackingMode.OPTIMISE, PreferencePolicy.IGNORE)
    assert (other.batch_max_seconds, other.gates.node_repair) == (20.0, True)
    assert (one.mode, one.max_batch_pods) == (PackingMode.EXACT, 100)
    assert (one.batch_max_seconds, one.gates.node_repair) == (20.0, True)
    assert (other.gates.node_overlay, one.gates.node_overlay) == (True, False)


def test_flags_replace_the_file_but_not_what_it_says_of_one_cluster() -> None:
    config = parse_config(FILE, None, {"mode": "optimise", "batchMaxDuration": "5s"})
    assert config.of("x/y").batch_max_seconds == 5.0
    assert config.of("tenant-a/one").mode is PackingMode.EXACT


def test_options_reach_every_controller() -> None:
    text = (
        "NodeRepair=true,SpotToSpotConsolidation=true,StaticCapacity=false,ReservedCapacity=false"
    )
    given = AutoscalerOptions().with_values(
        {
            "mode": "exact",
            "minValuesPolicy": "BestEffort",
            "preferencePolicy": "Ignore",
            "batchIdleDuration": "500ms",
            "maxBatchPods": "7",
            "featureGates": text,
        }
    )
    assert given.min_values_policy is MinValuesPolicy.BEST_EFFORT
    made = AutoscalerSettings.of(given)
    assert made.provisioning.mode is PackingMode.EXACT
    assert made.provisioning.idle_seconds == 0.5
    assert made.claims.repair
    assert not made.disruption.optimise
    assert made.disruption.spot_to_spot
    assert not made.disruption.static
    assert made.max_batch_pods == 7
    for options in (made.provisioning.options, made.disruption.options):
        assert options.best_effort_min_values
        assert options.ignore_preferences
        assert not options.reserved_capacity


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mode": "fast"}, "mode must be one of exact, optimise"),
        ({"preferencePolicy": "respect"}, "must be one of Respect, Ignore"),
        ({"minValuesPolicy": 1}, "must be one of Strict, BestEffort"),
        ({"batchMaxDuration": "ten"}, "batchMaxDuration must be a positive duration"),
        ({"batchIdleDuration": "0s"}, "batchIdleDuration must be a positive duration"),
        ({"batchIdleDuration": "20s"}, "batchIdleDuration is longer than batchMaxDuration"),
        ({"maxBatchPods": -1}, "maxBatchPods must be a number of pods"),
        ({"maxBatchPods": True}, "maxBatchPods must be a number of pods"),
        ({"featureGates": {"Nope": True}}, "unknown Nope; known are CapacityBuffer"),
        ({"featureGates": "NodeRepair"}, "must be Name=true or Name=false"),
        ({"featureGates": {"nodeRepair": "maybe"}}, "must be true or false"),
        ({"batchsize": 1}, "unknown batchsize; known are"),
    ],
)
def test_a_wrong_value_names_its_field(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=r"features\.autoscaler") as caught:
        AutoscalerOptions().with_values(values)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("features: {autoscaler: exact}", "features.autoscaler must be a mapping"),
        ("features: {autoscaler: {clusters: [a]}}", "clusters must be a mapping"),
        ("features: {autoscaler: {clusters: {one: {}}}}", "given as namespace/name, not 'one'"),
        ("features: {autoscaler: {clusters: {a/b: {mode: x}}}}", "clusters.a/b.mode must be one"),
    ],
)
def test_a_wrong_file_names_its_field(text: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_config(text)
    assert message in str(caught.value)
