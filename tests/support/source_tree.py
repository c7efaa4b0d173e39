"""The product's modules, each parsed and walked once for all tests of one process."""

import ast
import gc
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

SRC = Path(__file__).parents[2] / "src" / "moxwell"
GENERATED = ("_pb2.py", "_pb2_grpc.py")
N = TypeVar("N", bound=ast.AST)


@cache
def modules() -> tuple[Path, ...]:
    """All modules but generated ones."""
    return tuple(sorted(p for p in SRC.rglob("*.py") if not p.name.endswith(GENERATED)))


def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return _trees()[path]


@cache
def _trees() -> dict[Path, ast.Module]:
    """All trees; the garbage collector would otherwise search them again and again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        found = {path: ast.parse(path.read_text()) for path in modules()}
        gc.freeze()
    finally:
        if collects:
            gc.enable()
    return found


@cache
def _by_kind(path: Path) -> dict[type[ast.AST], tuple[ast.AST, ...]]:
    found: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
    for node in ast.walk(tree_of(path)):
        found[type(node)].append(node)
    return {kind: tuple(nodes) for kind, nodes in found.items() if kind in KINDS}


KINDS = frozenset(
    {
        ast.AsyncFunctionDef,
        ast.Call,
        ast.ClassDef,
        ast.ExceptHandler,
        ast.FunctionDef,
        ast.Import,
        ast.ImportFrom,
    }
)


def nodes_of(path: Path, *kinds: type[N]) -> Iterator[N]:
    """The nodes of a module that have one of these kinds."""
    for kind in kinds:
        assert kind in KINDS
        yield from _by_kind(path).get(kind, ())  # type: ignore[misc]


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of a name or an attribute; ``?.b.c`` if it begins with another expression."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.append(node.id if isinstance(node, ast.Name) else "?")
    return ".".join(reversed(names))


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Full names of what a module imports."""
    found = [a.name for node in nodes_of(path, ast.Import) for a in node.names]
    for node in nodes_of(path, ast.ImportFrom):
        if node.module:
            found += [f"{node.module}.{a.name}" for a in node.names]
    return tuple(found)


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions and methods of a module."""
    yield from nodes_of(path, ast.FunctionDef)
    yield from nodes_of(path, ast.AsyncFunctionDef)
