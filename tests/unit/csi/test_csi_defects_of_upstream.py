"""Every pain of proxmox-csi-plugin, every defect of it and every fault has a test of its name."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
PAINS = {
    1: "a slot used again shows another volume (#601, #543, #106)",
    2: "success is told while the hotplug failed (#621, #585, #605)",
    3: "snapshots are copies, by root, not on shared storage (#247, #259)",
    4: "local volumes do not follow a guest (#157, #58)",
    5: "many claims at once time out (#479, #358)",
    6: "several nodes want one volume (#281, #107)",
    7: "a zone is demanded for shared storage (#635, #357, #371)",
    8: "expand and modify fail on shared storage (#564)",
    9: "backup cannot be chosen (#201, #342)",
    10: "the limit of volumes (#367)",
    11: "a boot disk is attached as a volume (#363)",
    12: "guests are confused by their names (#401, #116, #303)",
    13: "guests outside the token's rights matter (#497, #485, #481)",
    14: "a detach from a guest that went away never ends (#392)",
    15: "names that tell nobody anything, and errors about capacity (#205, #348)",
}
DEFECTS = {
    1: "attributes are lost at the next attach",
    2: "unknown parameters are accepted",
    3: "another size is taken for the same volume",
    4: "a foreign id is an error",
    5: "no space is taken for no answer",
    6: "a driver without Proxmox is ready",
    7: "every error is INTERNAL",
    8: "a name inside another is taken for it",
    9: "a volume is given to two guests",
}
FAULTS = {
    "the connection is cut after the effect": "test_an_answer_lost_after_the_effect",
    "a task fails late": "test_a_task_that_fails_late_is_a_failure",
    "the hotplug is refused": "test_pain_2_a_hotplug_that_stays_pending_is_a_failure",
    "the guest was migrated": "test_pain_4_a_guest_that_moved_is_found",
    "two attaches race": "test_two_attaches_that_race_have_one_winner",
    "killed after each effect": "test_a_kill_costs_a_call_and_nothing_else",
    "killed while moving a volume": "test_a_move_that_is_killed_after_any_effect",
    "a disk attached by hand": "test_a_disk_attached_by_hand_is_seen_at_once",
}


@pytest.fixture(scope="module")
def names() -> frozenset[str]:
    """The names of all tests about storage."""
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
        *(pytest.param(f"test_pain_{n}_", id=f"pain {n}: {text}") for n, text in PAINS.items()),
        *(pytest.param(f"test_defect_{n}_", id=f"defect {n}: {t}") for n, t in DEFECTS.items()),
        *(pytest.param(start, id=f"fault: {text}") for text, start in FAULTS.items()),
    ],
)
def test_there_is_a_test_of_this_name(names: frozenset[str], start: str) -> None:
    assert any(name.startswith(start) for name in names)
