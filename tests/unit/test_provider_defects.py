"""
Defects of karpenter-provider-proxmox and of Karpenter that users reported, and our tests.

Each row names the defect and the tests that show that it is not here. The test below keeps that
they exist; what they assert is in them.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LAUNCH = "integration/test_karpenter_proxmox.py"
LIMITS = "integration/test_karpenter_launch_limits.py"
PINNED = "integration/test_karpenter_numa.py"
NUMA = "unit/scheduling/test_numa.py"
AGENT = "unit/agent/test_agent_pinning.py"
UPSTREAM = "integration/test_infra_defects_of_upstream.py"
DEFECTS = [
    # launch
    (
        "a network device that cannot be read drops cores, memory and affinity",
        "unit/scheduling/test_scheduling_guest_hardware.py",
        "a_network_device_of_the_template_that_cannot_be_read_drops_nothing_else",
    ),
    (
        "30 to 40 requests per launch, polls per guest",
        LAUNCH,
        "a_node_claim_becomes_a_node_and_leaves_nothing_behind",
    ),
    (
        "waits of 5 and 2 seconds destroy healthy guests",
        LIMITS,
        "full_clones_are_limited_and_slow_ones_are_kept",
    ),
    ("parallel clones time each other out", LIMITS, "slots_are_counted_per_host_and_storage"),
    (
        "the loser of a race for a VMID deletes the winner's guest",
        LAUNCH,
        "a_node_claim_becomes_a_node_and_leaves_nothing_behind",
    ),
    (
        "a guest that never registers is leaked",
        "integration/test_karpenter_crash.py",
        "after_any_effect",
    ),
    ("no InsufficientCapacity, no other offering", LAUNCH, "a_host_without_room_is_passed_over"),
    (
        "an image without a name panics",
        "integration/test_template_objects.py",
        "a_template_is_made_and_a_machine_uses_it_by_its_version",
    ),
    (
        "the storage of the boot device is required in fact",
        "integration/test_karpenter_examples.py",
        "every_example_of_the_provider_ends_in_nodes",
    ),
    (
        "the guest is configured and started while its disk is resized",
        "unit/controllers/infra/test_infra_machine_plan.py",
        "next_move",
    ),
    (
        "the end of a node cuts its guest off",
        UPSTREAM,
        "a_guest_that_ignores_shutdown_is_stopped",
    ),
    (
        "a deleted guest stays in the HA manager",
        UPSTREAM,
        "high_availability_is_registered_and_purged",
    ),
    (
        "eviction thresholds of one launch change those of the next",
        "unit/controllers/karpenter/test_karpenter_proxmox_launch.py",
        "thresholds_of_one_size_do_not_change_those_of_another",
    ),
    ("full clones only", LAUNCH, "a_node_claim_becomes_a_node_and_leaves_nothing_behind"),
    # capacity
    (
        "containers and guests in flight do not count",
        LIMITS,
        "containers_count_and_hosts_have_ratios_of_overcommitment",
    ),
    (
        "no ratio of overcommitment",
        LIMITS,
        "containers_count_and_hosts_have_ratios_of_overcommitment",
    ),
    (
        "disk space is not checked",
        "unit/scheduling/test_guest_sizes.py",
        "a_size_without_disk_space_is_not_offered",
    ),
    (
        "reserved memory is the same for every size",
        "unit/scheduling/test_guest_sizes.py",
        "overhead_grows_with_the_size",
    ),
    (
        "a node reports less memory than its guest has",
        "unit/controllers/karpenter/test_karpenter_proxmox_launch.py",
        "a_node_reports_less_memory_than_its_guest_has",
    ),
    (
        "opaque reason why no type matches",
        "unit/controllers/karpenter/test_karpenter_proxmox_launch.py",
        "why_there_is_no_offering",
    ),
    ("the key memory of the documentation is ignored", NUMA, "a_file_describes_hosts"),
    (
        "credentials in files are refused",
        "unit/pve/test_pve_config.py",
        "secrets_and_ca_are_read_from_files",
    ),
    # joining
    ("kubeadm refuses the token: no signature", LAUNCH, "templates_of_a_secret_make_a_node"),
    ("a token joins as any node", "attacks/test_join_tokens.py", "a_token_joins_its_own_node_only"),
    (
        "tokens are not deleted",
        "unit/controllers/karpenter/test_karpenter_proxmox_launch.py",
        "tokens_of_registered_and_missing_claims_are_obsolete",
    ),
    # NUMA and pinning
    (
        "each NUMA node gets the whole memory",
        NUMA,
        "a_guest_that_must_span_divides_its_memory_exactly",
    ),
    (
        "vCPUs are mapped to CPUs in random order",
        AGENT,
        "each_vcpu_gets_its_cpu_and_the_emulator_runs_beside_them",
    ),
    ("the guest sees no topology", NUMA, "a_socket_for_each_numa_node"),
    ("shared guests run on pinned cores", AGENT, "no_thread_of_another_runs_on_a_pinned_core"),
    (
        "an offering ignores NUMA nodes, its launch fails",
        PINNED,
        "pinned_guests_start_and_share_nothing",
    ),
    (
        "the topology is guessed wrong",
        "unit/agent/test_agent_topology.py",
        "the_published_topology_places_guests",
    ),
    ("queues per NIC regress", NUMA, "queues_follow_vcpus"),
    (
        "an address that another guest has is given out",
        "integration/test_infra_taken_addresses.py",
        "an_address_that_somebody_uses_is_not_given",
    ),
    (
        "addresses are forgotten with a restart",
        "integration/test_infra_taken_addresses.py",
        "after_any_effect",
    ),
    # zones, templates and groups
    ("the architecture is always amd64", LAUNCH, "the_architecture_of_a_node_is_that_of_its_host"),
    (
        "a URL with a port or an IP address is refused",
        "unit/api/test_api_karpenter.py",
        "a_template_takes_a_url_with_port_and_address",
    ),
    (
        "security groups are compared by position",
        "integration/test_infra_in_place.py",
        "a_security_group_moves_to_another_device",
    ),
    (
        "a decision about many pods takes minutes",
        "integration/test_autoscaler_limits.py",
        "a_decision_that_takes_too_long_makes_the_next_ones_smaller",
    ),
    # what users of Karpenter itself report
    (
        "a node is replaced by an equal one",
        "unit/scheduling/test_consolidation.py",
        "several_nodes_become_one_but_not_one_of_their_own_kind",
    ),
    (
        "no warm capacity",
        "integration/test_karpenter_warm_pool.py",
        "a_launch_takes_a_warm_guest_and_the_pool_is_filled_again",
    ),
    (
        "volume limits of new nodes are unknown",
        "unit/scheduling/test_packing.py",
        "attach_limits_hold_on_existing_and_on_new_nodes",
    ),
    (
        "a drain is stuck on a disruption budget",
        "unit/controllers/karpenter/test_karpenter_claim.py",
        "a_budget_blocks_the_drain_until_the_grace_period_ends",
    ),
    (
        "storages of templates are confusing",
        "integration/test_template_objects.py",
        "bad_input_is_a_condition_and_leaves_nothing",
    ),
    (
        "types do not tell their zones, so pods cannot be spread over them",
        "unit/controllers/karpenter/test_karpenter_proxmox_launch.py",
        "the_catalogue_has_an_offering_for_each_host",
    ),
    (
        "a zone is a single host",
        UPSTREAM,
        "zones_are_failure_domains_over_several_regions",
    ),
    (
        "a node cannot be resized in place",
        "integration/test_infra_machines.py",
        "changes_in_place_if_the_spec_allows_them",
    ),
    (
        "consolidation never finishes and replaces for nothing",
        "unit/scheduling/test_disruption_methods.py",
        "the_search_never_does_worse_never_overcommits_and_never_churns",
    ),
    (
        "the installation does not say what is missing",
        "upstream/test_chart_moxwell.py",
        "values_that_cannot_work_are_refused",
    ),
    (
        "spot capacity is not known",
        "integration/test_autoscaler_scenes.py",
        "every_scene_on_the_embedded_api",
    ),
    (
        "sizes are fixed",
        "unit/scheduling/test_guest_sizes.py",
        "fitted_sizes_use_what_hosts_have_free",
    ),
]


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("defect", "file", "test"), DEFECTS, ids=[row[0] for row in DEFECTS])
def test_each_defect_has_a_test(defect: str, file: str, test: str) -> None:
    assert f"test_{test}" in names_in(TESTS / file), defect
