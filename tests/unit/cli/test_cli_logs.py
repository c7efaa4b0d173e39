"""``moxwell logs``: which lines belong to an object, and lines that are written later."""

from pathlib import Path

import pytest

from moxwell.cli import logs

CLUSTER = "t [info] pass controller=tenancy.cluster key=tenant-demo/demo pass=1\n"
MACHINE = "t [info] proxmox write controller=infra.machine key=tenant-demo/demo-md0-x method=PUT\n"
OBJECT = "t [info] write controller=infra.machine object=tenant-demo/demo-md0-x\n"
OTHER = "t [info] pass controller=infra.machine key=tenant-a/demonstration\n"
DAEMON = "t [info] daemon started name=lab\n"
LINES = [CLUSTER, MACHINE, OBJECT, OTHER, DAEMON]

CASES: dict[str, tuple[tuple[str, str, str], list[str]]] = {
    "everything": (("", "", ""), LINES),
    "a cluster and its machines": (("demo", "", ""), [CLUSTER, MACHINE, OBJECT]),
    "one machine": (("demo-md0-x", "", ""), [MACHINE, OBJECT]),
    "a namespace": (("", "tenant-a", ""), [OTHER]),
    "a name in another namespace": (("demo", "tenant-a", ""), []),
    "a controller": (("", "", "infra.machine"), [MACHINE, OBJECT, OTHER]),
    "a group of controllers": (("", "", "tenancy"), [CLUSTER]),
    "characters of patterns": (("demo.*", "", ""), []),
}


@pytest.mark.parametrize(("words", "found"), CASES.values(), ids=CASES)
def test_lines_belong_to_the_object(words: tuple[str, str, str], found: list[str]) -> None:
    assert [line for line in LINES if logs.matcher(*words)(line)] == found


def test_new_lines_are_read_whole_and_after_a_rotation(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("one\ntwo\nthr")
    assert logs.read_lines(file, 4) == (["two\n"], 8)
    file.write_text("one\ntwo\nthree\n")
    assert logs.read_lines(file, 8) == (["three\n"], 14)
    assert logs.read_lines(file, 14) == ([], 14)
    file.write_text("new\n")
    assert logs.read_lines(file, 14) == (["new\n"], 4)
    file.unlink()
    assert logs.read_lines(file, 4) == ([], 0)


def test_rotated_files_are_read_first(tmp_path: Path) -> None:
    file = tmp_path / "log"
    for name, text in (("log.2", "one\n"), ("log.1", "two\n"), ("log", "three\nfour\nfi")):
        (tmp_path / name).write_text(text)
    lines = ["one\n", "two\n", "three\n", "four\n"]
    assert list(logs.all_lines(file, 11)) == lines
    assert list(logs.all_lines(file, 13)) == [*lines, "fi"]
