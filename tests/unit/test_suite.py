"""The suite's own workings: what is slow to start is started once, not once per worker."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from moxwell import testing

TESTS = Path(__file__).parents[1]
NAMED_TUPLE = ("_replace", "_asdict", "_fields", "_make")
FOREIGN = {  # modules and objects of others that offer no public way
    "asyncio": ("_set_running_loop",),
    "os": ("_exit",),
    "self.api": ("_store",),  # the session of proxmoxer
    "ssl": ("_create_unverified_context",),
}


def private_uses(path: Path, root: Path = TESTS) -> list[str]:
    """Private attributes of other objects, and private names of modules, that a test uses."""
    return [
        f"{path.relative_to(root)}:{line} {owner}.{name}"
        for line, owner, name in uses(ast.parse(path.read_text()))
        if is_private(name)
        and owner not in ("self", "cls")
        and name not in (*NAMED_TUPLE, *FOREIGN.get(owner, ()))
    ]


def uses(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Line, owner and name of each attribute and import, also those that a string names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node.value), node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("getattr", "setattr")):
            for name in node.args[1:2]:
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield node.lineno, ast.unparse(node.args[0]), name.value


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_test_uses_private_names_of_others() -> None:
    """A test that needs one asks for a public observation, or tests the behaviour."""
    found = [
        use
        for root in (TESTS, Path(testing.__file__).parent)
        for path in sorted(root.rglob("*.py"))
        for use in private_uses(path, root)
    ]
    assert found == []


def test_private_uses_are_found(tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text(
        "from a import _b\nx._y\nself._z\nx.__name__\nrow._replace()\nos._exit(0)\n"
        "getattr(x, '_c')\nmonkeypatch.setattr(x, 'd', 1)\n"
    )
    assert [use.rpartition(" ")[2] for use in private_uses(file, tmp_path)] == [
        "a._b",
        "x._y",
        "x._c",
    ]


@pytest.mark.xdist_group("together")
def test_a_group_stays_on_one_worker(request: pytest.FixtureRequest) -> None:
    """
    By what xdist adds to the names of tests. If this fails, pytest and xdist do not fit together:
    nothing else would, but every lab and control plane of a module would run on each worker.
    """
    grouped = bool(request.config.getoption("loadgroup", default=False))
    assert request.node.nodeid.endswith("@together") == grouped
