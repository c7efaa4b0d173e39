"""Backup retention."""

import pytest

from moxwell.lab.proxmox.state import SimVolume
from moxwell.lab.proxmox.volumes import prune

DAY = 86400


def backups(*days: float, protected: tuple[float, ...] = ()) -> list[SimVolume]:
    return [
        SimVolume(f"b{day}", "vma", "backup", 1, ctime=int(1767225600 + day * DAY), vmid=100,
               protected=day in protected)
        for day in days
    ]  # fmt: skip


CASES: list[tuple[str, list[SimVolume], str, set[str]]] = [
    ("everything", backups(1, 2, 3), "keep-all=1", {"b1", "b2", "b3"}),
    ("no rule at all", backups(1, 2), "", {"b1", "b2"}),
    ("the last two", backups(1, 2, 3), "keep-last=2", {"b2", "b3"}),
    ("one a day", backups(1, 1.5, 2, 2.5), "keep-daily=2", {"b1.5", "b2.5"}),
    ("a day that the last covers", backups(1, 2, 2.5), "keep-last=1,keep-daily=1", {"b2.5", "b1"}),
    ("protected ones do not count", backups(1, 2, 3, protected=(3,)), "keep-last=1", {"b3", "b2"}),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_retention(case: tuple[str, list[SimVolume], str, set[str]]) -> None:
    found = prune.marks(case[1], case[2])
    assert {volume.name for volume, mark in found if mark != "remove"} == case[3]
