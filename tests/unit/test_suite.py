"""The suite's own workings: what is slow to start is started once, not once per worker."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NAMED_TUPLE = ("_replace", "_asdict", "_fields", "_make")
FOREIGN = {  # modules of others that offer no public way
    "os": ("_exit",),
    "ssl": ("_create_unverified_context",),
}


def private_uses(path: Path, root: Path = TESTS) -> list[str]:
    """Private attributes of other objects, and private names of modules, that a test uses."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value)
            allowed = (*NAMED_TUPLE, *FOREIGN.get(owner, ()))
            if owner not in ("self", "cls") and node.attr not in allowed:
                found.append(f"{path.relative_to(root)}:{node.lineno} {owner}.{node.attr}")
        elif isinstance(node, ast.ImportFrom):
            names = [a.name for a in node.names if is_private(a.name)]
            found += [f"{path.relative_to(root)}:{node.lineno} {name}" for name in names]
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_test_uses_private_names_of_others() -> None:
    """A test that needs one asks for a public observation, or tests the behaviour."""
    found = [use for path in sorted(TESTS.rglob("*.py")) for use in private_uses(path)]
    assert found == []


def test_private_uses_are_found(tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text("from a import _b\nx._y\nself._z\nx.__name__\nrow._replace()\nos._exit(0)\n")
    assert [use.rpartition(" ")[2] for use in private_uses(file, tmp_path)] == ["_b", "x._y"]


@pytest.mark.xdist_group("together")
def test_a_group_stays_on_one_worker(request: pytest.FixtureRequest) -> None:
    """
    By what xdist adds to the names of tests. If this fails, pytest and xdist do not fit together:
    nothing else would, but every lab and control plane of a module would run on each worker.
    """
    grouped = bool(request.config.getoption("loadgroup", default=False))
    assert request.node.nodeid.endswith("@together") == grouped
