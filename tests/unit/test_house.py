"""The house rules that a machine can check: who imports whom, and how large a module grows."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "moxwell"
LIMIT = 400

# package -> packages of ours it may import (errors and clock are open to all)
MAY: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "pki": set(),
    "task_group": set(),
    "api": set(),
    "scheduling": {"api"},
    "bootstrap": {"api"},
    "pve": set(),
    "kube": {"api"},
    "runtime": {"api", "kube"},
    "controllers": {"api", "scheduling", "bootstrap", "pve", "kube", "runtime"},
    "csi": {"api", "scheduling", "pve", "kube", "runtime"},
    "web": {"api", "scheduling", "kube", "runtime"},
    "plan": {"api", "scheduling", "kube", "runtime", "controllers"},
    "verify": {"api", "scheduling", "kube", "runtime", "controllers"},
    "embedded": {"api", "kube", "runtime", "scheduling"},
    "lab": {"kube", "api", "bootstrap"},
}
OPEN = {"errors", "clock", "pki", "task_group"}
FREE = {"testing", "app", "cli", "__init__", "__main__"}
TIME = {"time.time", "time.monotonic", "time.sleep", "datetime.now", "datetime.utcnow"}


def modules() -> list[Path]:
    return sorted(p for p in SRC.rglob("*.py") if not p.name.endswith(("_pb2.py", "_pb2_grpc.py")))


def package_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{a.name}" for a in node.names)


def our_packages(tree: ast.AST) -> set[str]:
    return {
        name.split(".")[1]
        for name in imported(tree)
        if name.startswith("moxwell.") and len(name.split(".")) > 1
    }


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SRC)))
def test_imports_point_down(path: Path) -> None:
    package = package_of(path)
    if package in FREE:
        return
    allowed = MAY[package] | OPEN | {package, "__version__"}
    assert our_packages(ast.parse(path.read_text())) <= allowed


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SRC)))
def test_module_fits_on_a_few_screens(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LIMIT


def test_nothing_imports_testing() -> None:
    guilty = [
        p
        for p in modules()
        if package_of(p) != "testing" and "testing" in our_packages(ast.parse(p.read_text()))
    ]
    assert guilty == []


def test_only_the_store_opens_sqlite() -> None:
    guilty = [
        p
        for p in modules()
        if not p.is_relative_to(SRC / "embedded" / "apiserver")
        and package_of(p) != "testing"
        and "sqlite3" in set(imported(ast.parse(p.read_text())))
    ]
    assert guilty == []


def test_only_the_clock_reads_time() -> None:
    guilty = [
        (p.name, ast.unparse(node.func))
        for p in modules()
        if package_of(p) not in {"clock", "testing"}
        for node in ast.walk(ast.parse(p.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in TIME
    ]
    assert guilty == []


def test_broad_except_stands_in_one_place() -> None:
    guilty = [
        f"{p.relative_to(SRC)}:{node.lineno}"
        for p in modules()
        for node in ast.walk(ast.parse(p.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
    ]
    assert all(place.startswith("runtime/worker.py") for place in guilty), guilty
