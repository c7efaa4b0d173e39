"""
The words of the product: class names are unique, names that users see are known words.

A name is split into words; each is in ``upstream_words.txt`` (words of the Kubernetes, Cluster API,
CSI and Proxmox documentation and plain technical English) or explained in ``docs/glossary.md``.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from moxwell.api import registry
from support.source_tree import SRC, dotted, imported, modules, nodes_of, tree_of

pytestmark = pytest.mark.xdist_group("source")  # parsed once
ROOT = Path(__file__).parents[2]
UPSTREAM = Path(__file__).with_name("upstream_words.txt")
GLOSSARY = ROOT / "docs" / "glossary.md"
METRICS = {"Counter", "Gauge", "Histogram", "Summary", "counter", "gauge", "histogram"}
CAMEL = re.compile(r"^[A-Z][A-Za-z0-9]+$")

# Words of the first version, which had a language of its own, and where one may still stand:
# conversions that read stored names, and words of other people.
OLD_WORDS: dict[str, tuple[str, ...]] = {
    r"carcass(es)?": (),
    r"moulds?": (),
    r"shel(f|ves)": (),
    r"setbacks?": (),
    r"fittings": (),
    r"rations": (),
    r"wish(es|ed)?": (),
    r"eyes?": (),
    r"belonging": (),
    r"told": (),
    r"lets? go": (),
    r"goes away": (),
    r"is said": (),
    r"its last things": (),
    r"NameIt|TakeClaim|GiveBack|AskAddresses|ForgetCarcass|AsAsked": (),
    r"detour": ("api/infra/", "docs/reference/kinds.md"),
    r"seed[-_ ]?(disk|iso|image)s?": (),
    r"genuine[-_ ]planes?|hosted planes?": ("pve/config.py",),
    r"estates?": ("web/", "docs/dashboard.md", "docs/glossary.md"),
    r"Tidy": ("api/infra/", "controllers/infra/machine/describe.py"),
}
ADR = "docs/adr/"  # dated decisions are superseded, not edited


@cache
def product_modules() -> tuple[Path, ...]:
    return tuple(p for p in modules() if "testing" not in p.relative_to(SRC).parts)


def test_a_public_class_name_is_used_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in product_modules():
        for node in nodes_of(path, ast.ClassDef):
            if not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(SRC)}:{node.lineno}")
    repeated = {name: found for name, found in sorted(places.items()) if len(found) > 1}
    assert repeated == {}, "\n".join(f"{n}: {' '.join(p)}" for n, p in repeated.items())


def packages() -> set[str]:
    return {p.parent.name for p in SRC.rglob("__init__.py")} - {"moxwell"}


def kinds() -> set[str]:
    return {kind.resource.kind for kind in registry.KINDS}


def reasons() -> set[str]:
    """Values of ``…Reason`` enumerations, and ``reason`` of error classes."""
    found: set[str] = set()
    for path in product_modules():
        for node in nodes_of(path, ast.ClassDef):
            of_enum = node.name.endswith("Reason")
            found.update(v for n, v in constants(node.body) if of_enum or n == "reason")
    return found


def constants(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Names and values of assignments of text constants."""
    for node in body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.targets[0].id, node.value.value


def condition_types() -> set[str]:
    """``Condition(type="…")`` and constants of modules that use conditions."""
    found: set[str] = set()
    for path in product_modules():
        for node in nodes_of(path, ast.Call):
            if dotted(node.func).endswith("Condition"):
                found.update(texts(k.value) for k in node.keywords if k.arg == "type")
        if any(n.startswith("moxwell.api.conditions.") for n in imported(path)):
            found.update(v for _, v in constants(tree_of(path).body) if CAMEL.match(v))
    return found - {""}


def texts(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def metrics() -> set[str]:
    """The first argument of everything that creates a metric."""
    return {
        texts(node.args[0])
        for path in product_modules()
        for node in nodes_of(path, ast.Call)
        if node.args and dotted(node.func).rpartition(".")[2].lstrip("_") in METRICS
    } - {""}


@cache
def known_words() -> frozenset[str]:
    upstream = UPSTREAM.read_text().split()
    rows = re.findall(r"^\| ([^|]+) \|", GLOSSARY.read_text(), re.MULTILINE)
    return frozenset(upstream) | {word for row in rows for word in words_of(row)}


def words_of(name: str) -> list[str]:
    """``StaleClone`` and ``stale_clone_seconds`` as lower-case words."""
    return [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]*|[a-z]+", name)]


NAMES = {
    "packages": packages,
    "kinds": kinds,
    "reasons": reasons,
    "condition types": condition_types,
    "metrics": metrics,
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_names_are_made_of_known_words(names: object) -> None:
    found = names()  # type: ignore[operator]
    assert found
    unknown = {
        name: sorted(strange)
        for name in sorted(found)
        if (strange := set(words_of(name)) - known_words())
    }
    assert unknown == {}, f"use upstream's word, or explain it in docs/glossary.md: {unknown}"


def test_the_list_of_upstream_words_is_sorted() -> None:
    words = UPSTREAM.read_text().split()
    assert words == sorted(set(words))


@cache
def written() -> dict[Path, str]:
    """The texts of the product: sources, data files and documentation."""
    suffixes = {".py", ".js", ".css", ".html", ".yaml"}
    source = [p for p in SRC.rglob("*") if p.suffix in suffixes and not p.name.endswith("_pb2.py")]
    paths = sorted([*source, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
    return {path: path.read_text() for path in paths}


@pytest.mark.parametrize("word", OLD_WORDS, ids=lambda w: w.replace("\\", ""))
def test_words_of_the_private_language_are_gone(word: str) -> None:
    pattern = re.compile(rf"(?<![A-Za-z])({word})(?![A-Za-z])", re.IGNORECASE)
    found = []
    for path, text in written().items():
        if pattern.search(text) is None:
            continue
        name = str(path.relative_to(SRC if path.is_relative_to(SRC) else ROOT))
        if name.startswith((ADR, *OLD_WORDS[word])) or "CHANGELOG" in name:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert found == [], "\n".join(found)
