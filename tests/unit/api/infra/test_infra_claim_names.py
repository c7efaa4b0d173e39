"""Earlier names of the claim's fields are read, and the new names are written."""

import msgspec

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.template import Claim
from moxwell.controllers.infra.patches import explicit

OLD = b'{"host":"a","uuid":"u","detour":true,"left":["r/1","r/2"]}'


def test_earlier_names_are_read() -> None:
    claim = msgspec.json.decode(OLD, type=Claim)
    assert claim.migrate_after_clone
    assert claim.stale_clones == ("r/1", "r/2")
    new = {"host": "a", "uuid": "u", "migrateAfterClone": True, "staleClones": ("r/1", "r/2")}
    assert msgspec.to_builtins(claim) == new


def test_both_names_are_merged() -> None:
    both = {"host": "a", "uuid": "u", "staleClones": ["r/3", "r/1"], "left": ["r/1", "r/2"]}
    assert msgspec.convert(both, Claim).stale_clones == ("r/3", "r/1", "r/2")


def test_a_patch_removes_the_earlier_names() -> None:
    patch = explicit(msgspec.json.decode(OLD, type=Claim))
    assert (patch["detour"], patch["left"]) == (None, None)
    assert patch["staleClones"] == ("r/1", "r/2")


def test_what_was_applied_is_read_from_an_earlier_status() -> None:
    status = {"hardware": "h", "applied": {"tags": ["a"]}}
    found = msgspec.convert({"metadata": {}, "spec": {}, "status": status}, ProxmoxMachine)
    assert found.status.applied
    assert (found.status.applied.tags, found.status.hardware) == (("a",), "h")
