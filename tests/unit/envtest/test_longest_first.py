"""The order of the test suite: the tests that take longest come first."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from envtest.longest_first import TimedTest, merged, order, read, without_group, write

SHORT, OTHER = TimedTest("a.py::short"), TimedTest("a.py::other")
LONG, SLOW = TimedTest("b.py::long"), TimedTest("b.py::slow", slow=True)
IN_GROUP = (TimedTest("c.py::one", "lab"), TimedTest("c.py::two", "lab"))
KNOWN = {"b.py::long": 25.0, "c.py::one": 20.0, "c.py::two": 20.0}


@pytest.mark.parametrize(
    "tests, wanted",
    [
        pytest.param((SHORT, LONG), [1, 0], id="a long test is first"),
        pytest.param((SHORT, OTHER), [0, 1], id="short tests stay in their order"),
        pytest.param((LONG, *IN_GROUP), [1, 2, 0], id="the tests of a group count together"),
        pytest.param((IN_GROUP[0], LONG), [1, 0], id="only tests that run count"),
        pytest.param((SHORT, LONG, SLOW), [2, 1, 0], id="a slow test of unknown duration"),
        pytest.param((), [], id="nothing"),
    ],
)
def test_the_order(tests: tuple[TimedTest, ...], wanted: list[int]) -> None:
    assert order(tests, KNOWN) == wanted


def test_a_run_replaces_what_was_known_of_its_tests() -> None:
    measured = {"b.py::long": 0.1, "c.py::one": 3.04}
    assert merged(KNOWN, measured) == {"c.py::one": 3.0, "c.py::two": 20.0}


@pytest.mark.parametrize(
    "nodeid, wanted",
    [
        ("a.py::one@lab", "a.py::one"),
        ("a.py::one", "a.py::one"),
        ("a.py::one[root@pam]", "a.py::one[root@pam]"),
        ("a.py::one[root@pam]@lab", "a.py::one[root@pam]"),
    ],
)
def test_the_group_in_a_report(nodeid: str, wanted: str) -> None:
    assert without_group(nodeid) == wanted


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_an_unreadable_file_orders_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "durations.json").write_bytes(content)
    assert read(tmp_path / "durations.json") == {}


def test_a_cache_that_cannot_be_written_fails_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    write(tmp_path / "file" / "durations.json", KNOWN)
    write(tmp_path / "folder" / "durations.json", KNOWN)
    assert read(tmp_path / "folder" / "durations.json") == KNOWN


def run(folder: Path, *args: str) -> list[str]:
    """Run the tests of a folder with recorded durations; returns their names in order."""
    command = (sys.executable, "-m", "pytest", "-p", "envtest.longest_first", "-v", *args)
    tools = Path(__file__).parents[3] / "tools"
    environ = {"PYTHONPATH": str(tools), "MOXWELL_ENVTEST": str(folder), "PATH": ""}
    done = subprocess.run(
        command, check=False, cwd=folder, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    words = done.stdout.split()
    return [w.partition("::")[2] for w in words if w.startswith("test_sample.py::")]


@pytest.mark.parametrize(
    "args", [(), ("-n", "1", "--dist", "loadgroup")], ids=["alone", "on a worker"]
)
def test_pytest_runs_them_in_this_order(tmp_path: Path, args: tuple[str, ...]) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\naddopts = -p no:randomly\n")
    (tmp_path / "test_sample.py").write_text(
        "import pytest\n"
        "def test_short(): pass\n"
        "@pytest.mark.xdist_group('lab')\ndef test_one(): pass\n"
        "@pytest.mark.xdist_group('lab')\ndef test_two(): pass\n"
        "def test_long(): pass\n"
    )
    known = {f"test_sample.py::test_{name}": 20.0 for name in ("one", "two")}
    known |= {"test_sample.py::test_long": 30.0, "gone.py::test_gone": 9.0}
    (tmp_path / "durations.json").write_text(json.dumps(known))
    names = [name.partition("@")[0] for name in run(tmp_path, *args)]
    assert list(dict.fromkeys(names)) == ["test_one", "test_two", "test_long", "test_short"]
    assert read(tmp_path / "durations.json") == {"gone.py::test_gone": 9.0}
