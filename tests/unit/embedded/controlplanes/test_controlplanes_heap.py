"""What exists when a process begins to serve is not examined by later garbage collections."""

import subprocess
import sys

PROGRAM = """
import gc
from moxwell.embedded.controlplanes.processes import heap

class Node:
    pass

def cycle():
    node = Node()
    node.itself = node

heap.settle()
examined = len(gc.get_objects())
for _ in range(3 * heap.THRESHOLD):
    cycle()
left = sum(isinstance(found, Node) for found in gc.get_objects())
print(gc.get_freeze_count() > 10 * examined, left < 2 * heap.THRESHOLD)
"""


def test_objects_of_the_start_are_exempt_and_later_cycles_are_freed() -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["True", "True"]
