"""The rules of docs/architecture.md: imports, sizes, and which module may read what."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from support.source_tree import SRC, dotted, functions_of, imported, modules, nodes_of, tree_of

pytestmark = pytest.mark.xdist_group("source")  # parsed once
BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)  # what an import can stand in
MODULE_LINES = 400
FUNCTION_LINES = 40

# package -> packages of ours it may import; LEAVES are open to all
MAY: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "pki": set(),
    "atomic_file": set(),
    "config_file": set(),
    "task_group": set(),
    "json_lines": set(),
    "yaml_documents": set(),
    "api": set(),
    "scheduling": {"api"},
    "bootstrap": {"api"},
    "pve": set(),
    "kube": {"api"},
    "runtime": {"api", "kube"},
    "preflight": {"api", "scheduling", "pve"},
    "controllers": {"api", "scheduling", "bootstrap", "pve", "kube", "runtime", "preflight"},
    "csi": {"api", "scheduling", "bootstrap", "pve", "kube", "runtime"},
    # pve: the feed joins the inventory (read-only types) with the objects; csi: volume handles;
    # verify and plan: the daemon serves them as actions of the dashboard
    "web": {"api", "scheduling", "kube", "runtime", "controllers", "plan", "verify", "pve", "csi"}
    | {"preflight"},
    "plan": {"api", "scheduling", "bootstrap", "kube", "runtime", "controllers", "pve"},
    # csi: names and labels of volumes; pve: verify reads both sides and compares them
    "verify": {"api", "scheduling", "bootstrap", "kube", "runtime", "controllers", "pve", "csi"},
    "embedded": {"api", "kube", "runtime", "scheduling", "bootstrap"},
    "lab": {"kube", "api", "bootstrap"},
    "agent": set(),
    "externalgrpc": {"api", "scheduling", "kube"},
    "cni": {"api", "kube", "runtime"},
    "onboarding": {"pve", "preflight"},
    # pve: the configuration of the regions; bootstrap: patches of Talos
    "management": {"api", "bootstrap", "kube", "runtime", "pve"},
}
LEAVES = {"errors", "clock", "pki", "atomic_file", "config_file", "task_group", "json_lines"} | {
    "yaml_documents"
}
ONLY_ERRORS = LEAVES - {"errors", "clock"}
UNRESTRICTED = {"testing", "app", "cli", "__init__", "__main__"}
TIME = {"time.time", "time.monotonic", "time.sleep", "datetime.now", "datetime.utcnow"}
PURE = {"plan", "describe", "see", "events", "requeue_after"}


def product_modules() -> list[Path]:
    return [p for p in modules() if package_of(p) != "testing"]


def name_of(path: Path) -> str:
    return str(path.relative_to(SRC))


def package_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def our_imports(path: Path) -> list[str]:
    return [n.removeprefix("moxwell.") for n in imported(path) if n.startswith("moxwell.")]


def our_packages(path: Path) -> set[str]:
    return {name.split(".")[0] for name in our_imports(path)}


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_package_imports_only_what_the_architecture_allows(path: Path) -> None:
    package = package_of(path)
    if package in UNRESTRICTED:
        return
    allowed = MAY[package] | LEAVES | {package, "__version__"}
    assert our_packages(path) - allowed == set()


def test_simulator_does_not_import_the_proxmox_client_and_leaves_import_only_errors() -> None:
    found = [
        (name_of(p), name)
        for p in modules()
        for name in our_imports(p)
        if (package_of(p) == "lab" and name.startswith("pve."))
        or (package_of(p) in ONLY_ERRORS and not allowed_in_leaf(p, name))
    ]
    assert found == [], "\n".join(map(str, found))


def allowed_in_leaf(path: Path, name: str) -> bool:
    return name.split(".")[0] in {"errors", "atomic_file", "yaml_documents", package_of(path)}


def loop_of(dotted: str) -> Path | None:
    """The folder of the controller that a module belongs to; None for code that a group shares."""
    folder = SRC.joinpath(*dotted.split("."))
    if "controllers" not in folder.parts:
        return None
    found = (f for f in folder.parents if f.is_relative_to(SRC / "controllers"))
    return next((f for f in found if (f / "controller.py").exists()), None)


def group_of(dotted: str) -> str:
    """``infra`` of ``controllers.infra.machine``."""
    return dotted.split(".")[1] if dotted.startswith("controllers.") else ""


def test_controllers_never_import_a_sibling() -> None:
    """Loops share the modules of their group; only a group's setup.py knows all its loops."""
    found = []
    for path in (p for p in modules() if p.is_relative_to(SRC / "controllers")):
        if path.name == "setup.py":
            continue
        own = ".".join(path.relative_to(SRC).with_suffix("").parts)
        for name in our_imports(path):
            other_loop = loop_of(name) not in (None, loop_of(own))
            if other_loop or group_of(name) not in ("", group_of(own)):
                found.append(f"{own} imports {name}")
    assert found == [], "\n".join(found)


def module_named(dotted: str) -> str | None:
    """The module that a dotted import names, or that defines the name it imports."""
    parts = dotted.split(".")
    for end in (len(parts), len(parts) - 1):
        base = SRC.joinpath(*parts[:end]) if end else None
        if base is not None and base.with_suffix(".py").exists():
            return ".".join(parts[:end])
        if base is not None and (base / "__init__.py").exists() and end:
            return ".".join((*parts[:end], "__init__"))
    return None


def at_import_time(tree: ast.Module) -> Iterator[str]:
    """Imports that run when a module is loaded, not those in functions or for the type checker."""
    open_nodes: list[ast.AST] = [tree]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{a.name}" for a in node.names)
        open_nodes.extend(c for c in ast.iter_child_nodes(node) if isinstance(c, BLOCKS))


def test_modules_do_not_import_in_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for path in product_modules():
        own = ".".join(path.relative_to(SRC).with_suffix("").parts)
        names = (n.removeprefix("moxwell.") for n in at_import_time(tree_of(path)))
        graph[own] = {m for n in names if (m := module_named(n)) and m != own}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        pytest.fail(" <- ".join(cycle.args[1]))


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_module_is_at_most_400_lines_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MODULE_LINES


def test_functions_are_at_most_40_lines_long() -> None:
    found = [
        f"{name_of(p)}:{node.lineno} {node.name} {lines}"
        for p in modules()
        for node in functions_of(p)
        if (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
    ]
    assert found == [], "\n".join(map(str, found))


def test_nothing_imports_testing_or_a_test_library() -> None:
    found = [
        f"{name_of(p)}: {name}"
        for p in product_modules()
        for name in imported(p)
        if name.startswith("moxwell.testing") or name.split(".")[0] in {"hypothesis", "pytest"}
    ]
    assert found == [], "\n".join(map(str, found))


def test_hypothesis_is_imported_only_by_tests() -> None:
    found = [
        name_of(p) for p in modules() if any(n.split(".")[0] == "hypothesis" for n in imported(p))
    ]
    assert found == [], "\n".join(map(str, found))


def test_only_the_embedded_apiserver_opens_sqlite() -> None:
    found = [
        name_of(p)
        for p in product_modules()
        if not p.is_relative_to(SRC / "embedded" / "apiserver")
        and "sqlite3" in {n.split(".")[0] for n in imported(p)}
    ]
    assert found == [], "\n".join(map(str, found))


def test_only_the_clock_reads_time() -> None:
    found = [
        (name_of(p), dotted(node.func))
        for p in product_modules()
        if package_of(p) not in ("clock", "agent")  # the agent imports the standard library only
        for node in nodes_of(p, ast.Call)
        if dotted(node.func) in TIME
    ]
    assert found == [], "\n".join(map(str, found))


def test_only_the_worker_catches_every_exception() -> None:
    found = [
        f"{name_of(p)}:{node.lineno}"
        for p in modules()
        for node in nodes_of(p, ast.ExceptHandler)
        if node.type is None or {"Exception", "BaseException"} & names_in(node.type)
    ]
    assert [place for place in found if not place.startswith("runtime/worker.py")] == []


def names_in(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def reads_own_status(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[int]:
    """Lines that read ``.status`` of the first parameter after ``self``: the reconciled object."""
    parameters = [a.arg for a in function.args.posonlyargs + function.args.args]
    own = next((p for p in parameters if p != "self"), None)
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "status"
            and isinstance(node.value, ast.Name)
            and node.value.id == own
        ):
            yield node.lineno


def controller_modules() -> list[Path]:
    """Modules of controllers' folders, of the product and of the embedded cluster."""
    roots = (SRC / "controllers", SRC / "embedded")
    return [
        p
        for p in modules()
        if any(p.is_relative_to(root) for root in roots)
        and ((p.parent / "controller.py").exists() or p.name in {"controller.py", "plan.py"})
    ]


def test_controllers_do_not_read_the_status_of_their_own_object() -> None:
    found = [
        f"{name_of(p)}:{line} in {node.name}"
        for p in controller_modules()
        for node in functions_of(p)
        if node.name in PURE
        for line in reads_own_status(node)
    ]
    assert found == [], "\n".join(map(str, found))


def test_operator_mode_imports_neither_embedded_nor_lab() -> None:
    script = (
        "import sys, moxwell.app.operator, moxwell.cli.operator\n"
        "print(*sorted(m for m in sys.modules if m.startswith(('moxwell.embedded', 'moxwell.lab',"
        " 'moxwell.testing'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
