"""Every known defect of proxmox-csi-plugin has a test."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
ISSUES = {
    1: "a reused slot shows another volume (#601, #543, #106)",
    2: "attach succeeds although the hotplug failed (#621, #585, #605)",
    3: "snapshots are copies by root and do not work on shared storage (#247, #259)",
    4: "local volumes do not follow a guest (#157, #58)",
    5: "many concurrent claims time out (#479, #358)",
    6: "a volume on several nodes (#281, #107)",
    7: "a zone is required for shared storage (#635, #357, #371)",
    8: "expand and modify fail on shared storage (#564)",
    9: "backup is not configurable (#201, #342)",
    10: "the limit of volumes per node (#367)",
    11: "a boot disk is attached as a volume (#363)",
    12: "guests are identified by their names (#401, #116, #303)",
    13: "guests outside the token's permissions cause errors (#497, #485, #481)",
    14: "a detach from a deleted guest never ends (#392)",
    15: "meaningless disk names and errors about capacity (#205, #348)",
}
DEFECTS = {
    1: "attributes are lost at the next attach",
    2: "unknown parameters are accepted",
    3: "an existing volume of another size is returned",
    4: "a malformed id is an error",
    5: "a full storage looks like a timeout",
    6: "a driver without Proxmox is ready",
    7: "every error is INTERNAL",
    8: "a disk name within another is confused with it",
    9: "a volume is attached to two guests",
}
FAULTS = {
    "the connection is lost after the write": "test_a_lost_response",
    "a task fails late": "test_a_task_that_fails_late",
    "the hotplug is refused": "test_issue_2_a_pending_hotplug_fails",
    "the guest was migrated": "test_issue_4_a_migrated_guest_is_found",
    "two concurrent attaches": "test_of_two_concurrent_attaches",
    "killed after each write": "test_a_call_recovers_from_a_kill_after_any_write",
    "killed while a volume is migrated": "test_a_migration_recovers_from_a_kill",
    "a disk attached by hand": "test_a_disk_attached_by_hand_is_detected",
}


@pytest.fixture(scope="module")
def names() -> frozenset[str]:
    """The names of all CSI tests."""
    files = [*TESTS.glob("integration/test_csi_*.py"), *TESTS.glob("unit/csi/test_csi_*.py")]
    return frozenset(
        node.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef)
    )


@pytest.mark.parametrize(
    "start",
    [
        *(pytest.param(f"test_issue_{n}_", id=f"issue {n}: {text}") for n, text in ISSUES.items()),
        *(pytest.param(f"test_defect_{n}_", id=f"defect {n}: {t}") for n, t in DEFECTS.items()),
        *(pytest.param(start, id=f"fault: {text}") for text, start in FAULTS.items()),
    ],
)
def test_a_test_with_this_name_exists(names: frozenset[str], start: str) -> None:
    assert any(name.startswith(start) for name in names)
