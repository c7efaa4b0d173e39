"""The contract of controllers: what they may do in which part, reasons, and writes to Proxmox."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import moxwell
from moxwell.api.infra.machine_reasons import MachineErrorReason
from moxwell.errors import MoxwellError
from support.source_tree import SRC, dotted, modules, nodes_of, tree_of

pytestmark = pytest.mark.xdist_group("source")  # parsed once
PURE = frozenset({"plan", "describe", "events", "requeue_after"})
PARTS = PURE | {"see", "act"}

# Where a client that writes to Proxmox is made or handed out, beside the steps of Region.perform.
SEAMS = {
    "pve/regions.py": "Region.perform and Region.writer themselves",
    "onboarding/access.py": "before there is a region: the administrator confirms each object",
    "controllers/tenancy/tenant/controller.py": "the secret of a token is returned only once",
    "csi/disks.py": "the volume id of an allocated disk is returned by the write",
}
# Reasons are enumerations. These modules may name one otherwise.
UPSTREAM_REASONS = {
    "controllers/karpenter/provider.py": "Karpenter's reasons, which every provider reports",
    "controllers/karpenter/node_termination.py": "phases, which Karpenter uses as reasons",
}
# who decides, describes and shows reasons; findings of verify have codes of their own
READERS = ("controllers/", "plan/", "web/", "cli/", "externalgrpc/", "management/", "app/")
TWO_WORDS = re.compile(r"^(?:[A-Z]+[a-z]+){2,}$")
# also a volumeBindingMode; also types of conditions
OTHER_MEANINGS = {"WaitForFirstConsumer", "NoStaleClones", "UpToDate"}


def name_of(path: Path) -> str:
    return str(path.relative_to(SRC))


@cache
def product() -> tuple[Path, ...]:
    return tuple(p for p in modules() if p.relative_to(SRC).parts[0] not in {"testing", "lab"})


def bases(node: ast.ClassDef) -> set[str]:
    return {
        dotted(b.value if isinstance(b, ast.Subscript) else b).rpartition(".")[2]
        for b in node.bases
    }


def reconcilers() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in product():
        for node in nodes_of(path, ast.ClassDef):
            if bases(node) & {"Reconciler", "WritingReconciler"}:
                yield path, node


def methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    found = (n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return {n.name: n for n in found}


def own_attributes(node: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """Line, name and whether it is assigned, of every ``self.x`` below a node."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and dotted(each.value) == "self":
            yield each.lineno, each.attr, not isinstance(each.ctx, ast.Load)


def test_every_controller_module_has_a_class_of_the_contract_or_the_parts_of_a_loop() -> None:
    """A loop over all objects has no single object, so it is no reconciler."""
    kept = {path for path, _ in reconcilers()}
    other = {
        name_of(p)
        for p in product()
        if p.name == "controller.py" and p not in kept and p.parent.name != "csi"
    }
    assert other == {
        "controllers/infra/collect/controller.py",
        "controllers/karpenter/disruption/controller.py",
        "controllers/karpenter/garbage/controller.py",
        "controllers/karpenter/interruption/controller.py",
        "controllers/karpenter/provisioning/controller.py",
    }
    assert len(kept) > 50


def test_seeing_and_deciding_change_nothing_and_do_not_use_a_client() -> None:
    """``see`` reads through its reader; the other parts use neither clients nor clocks."""
    found = []
    for path, node in reconcilers():
        for name, function in methods(node).items():
            if name not in PARTS - {"act"}:
                continue
            for line, attribute, assigned in own_attributes(function):
                clock = "clock" in attribute and name in PURE
                if assigned or "kube" in attribute or clock:
                    found.append(f"{name_of(path)}:{line} {name} uses self.{attribute}")
    assert found == [], "\n".join(found)


def test_pure_parts_await_nothing() -> None:
    found = [
        f"{name_of(path)}:{function.lineno} {name}"
        for path, node in reconcilers()
        for name, function in methods(node).items()
        if name in PURE and isinstance(function, ast.AsyncFunctionDef)
    ]
    assert found == [], "\n".join(found)


def test_modules_that_see_import_no_client_that_writes() -> None:
    writing = {"moxwell.kube.client.Kube", "moxwell.pve.client.PveWriter"}
    found = [
        f"{name_of(path)}: {node.module}.{alias.name}"
        for path in product()
        if path.name.startswith("see")
        for node in nodes_of(path, ast.ImportFrom)
        for alias in node.names
        if f"{node.module}.{alias.name}" in writing or node.module == "moxwell.runtime.writes"
    ]
    assert found == [], "\n".join(found)


def test_proxmox_is_written_by_steps_and_at_the_documented_seams_only() -> None:
    found = {
        name_of(path)
        for path in product()
        for node in nodes_of(path, ast.Call)
        if dotted(node.func) == "PveWriter" or dotted(node.func).endswith(".writer")
    }
    assert found == set(SEAMS)


def enumerations() -> Iterator[ast.ClassDef]:
    for path in product():
        for node in nodes_of(path, ast.ClassDef):
            if node.name.endswith("Reason") and "StrEnum" in bases(node):
                yield node


@cache
def reasons() -> dict[str, str]:
    """The values of enumerations of reasons, with the name of one that has it."""
    return {
        str(each.value.value): node.name
        for node in enumerations()
        for each in node.body
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)
    }


def is_literal(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != ""


def test_conditions_waits_and_events_get_members_of_an_enumeration() -> None:
    found = []
    for path in product():
        if not name_of(path).startswith(("controllers/", "embedded/c", "embedded/s", "csi/")):
            continue
        for node in nodes_of(path, ast.Call):
            called = dotted(node.func).rpartition(".")[2]
            given = [k.value for k in node.keywords if k.arg == "reason"]
            if called in {"Wait", "Note"}:
                given += node.args[:1]
            kinds = {"Condition", "LegacyCondition", "Wait", "Note"}
            found += [
                f"{name_of(path)}:{each.lineno} {ast.unparse(each)}"
                for each in given
                if called in kinds and is_literal(each) and ast.unparse(each) != "'Ready'"
            ]
    assert found == [], "\n".join(found)


def test_reasons_are_not_written_again_as_literals() -> None:
    """Reasons of two words or more; one word is often also a type of condition or a phase."""
    known = {r for r in reasons() if TWO_WORDS.match(r)} - OTHER_MEANINGS
    found = [
        f"{name_of(path)}:{node.lineno} {node.value} is a {reasons()[node.value]}"
        for path in product()
        if name_of(path).startswith(READERS) and name_of(path) not in UPSTREAM_REASONS
        for node in texts_of(tree_of(path))
        if node.value in known
    ]
    assert found == [], "\n".join(found)


def texts_of(node: ast.AST) -> Iterator[ast.Constant]:
    """Constants but those that declare a reason or name a type of condition."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and "StrEnum" in bases(child):
            continue
        if isinstance(child, ast.Assign) and ast.unparse(child.targets[0]) == "reason":
            continue  # of a class of errors
        if isinstance(child, ast.keyword) and child.arg == "type":
            continue
        if isinstance(child, ast.Compare) and ast.unparse(child.left).endswith(
            (".type", "'type')")
        ):
            continue
        if isinstance(child, ast.Constant):
            yield child
        yield from texts_of(child)


def test_reasons_of_errors_that_are_distinguished_are_reasons_of_errors() -> None:
    for package in ("api", "pve", "scheduling"):
        for found in walk_packages([str(SRC / package)], f"{moxwell.__name__}.{package}."):
            import_module(found.name)
    assert set(MachineErrorReason) <= {each.reason for each in subclasses(MoxwellError)}


def subclasses(root: type[MoxwellError]) -> Iterator[type[MoxwellError]]:
    for each in root.__subclasses__():
        yield each
        yield from subclasses(each)
