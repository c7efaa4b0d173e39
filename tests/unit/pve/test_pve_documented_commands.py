"""
Every Proxmox command and value that the documentation or a message shows is valid by the schema.

Commands are found in code of the documentation and in texts of the source code. ``pveum`` and
``qm`` and others are front ends of API methods; the tables map them as Proxmox's own command
definitions do.
"""

import ast
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from moxwell.pve import preflight

ROOT = Path(__file__).parents[3]
FOLDER = ROOT.parent / "shared" / "pve"
RELEASES = ("8.4", "9.1")
DOCUMENTS = ("README.md", "SECURITY.md", "CHANGELOG.md", "docs", "charts", "release")
PROGRAMS = ("pveum", "pvesh", "qm", "pct", "pvesm", "ha-manager", "pvecm")
TOKEN = re.compile(r"\b([A-Za-z0-9._-]+@[a-z][a-z0-9-]*)!([A-Za-z0-9._-]+)")
MENTION = re.compile(rf"\b(?:{'|'.join(PROGRAMS)})\b|{TOKEN.pattern}")
GUEST = "/nodes/{node}/qemu/{vmid}"
# command: method, path, positional parameters
COMMANDS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "pveum role add": ("POST", "/access/roles", ("roleid",)),
    "pveum role modify": ("PUT", "/access/roles/{roleid}", ("roleid",)),
    "pveum user add": ("POST", "/access/users", ("userid",)),
    "pveum user token add": (
        "POST", "/access/users/{userid}/token/{tokenid}", ("userid", "tokenid")),
    "pveum user delete": ("DELETE", "/access/users/{userid}", ("userid",)),
    "pveum role delete": ("DELETE", "/access/roles/{roleid}", ("roleid",)),
    "pveum acl modify": ("PUT", "/access/acl", ("path",)),
    "pveum pool add": ("POST", "/pools", ("poolid",)),
    "qm config": ("GET", f"{GUEST}/config", ("vmid",)),
    "qm set": ("PUT", f"{GUEST}/config", ("vmid",)),
    "qm start": ("POST", f"{GUEST}/status/start", ("vmid",)),
    "qm stop": ("POST", f"{GUEST}/status/stop", ("vmid",)),
    "qm shutdown": ("POST", f"{GUEST}/status/shutdown", ("vmid",)),
    "qm resume": ("POST", f"{GUEST}/status/resume", ("vmid",)),
    "qm destroy": ("DELETE", GUEST, ("vmid",)),
    "qm template": ("POST", f"{GUEST}/template", ("vmid",)),
    "qm migrate": ("POST", f"{GUEST}/migrate", ("vmid", "target")),
    "qm disk resize": ("PUT", f"{GUEST}/resize", ("vmid", "disk", "size")),
    "qm create": ("POST", "/nodes/{node}/qemu", ("vmid",)),
    "qm importdisk": ("POST", "", ("vmid", "source", "storage")),
    "pvesm set": ("PUT", "/storage/{storage}", ("storage",)),
    "pvesm free": ("DELETE", "/nodes/{node}/storage/{storage}/content/{volume}", ("volume",)),
    "ha-manager add": ("POST", "/cluster/ha/resources", ("sid",)),
    "ha-manager remove": ("DELETE", "/cluster/ha/resources/{sid}", ("sid",)),
    "pvesh get": ("GET", "", ()),
    "pvesh set": ("PUT", "", ()),
    "pvesh create": ("POST", "", ()),
    "pvesh delete": ("DELETE", "", ()),
}  # fmt: skip
# Commands without an API method, with their options.
LOCAL: Mapping[str, frozenset[str]] = {
    "ha-manager crm-command node-maintenance enable": frozenset(),
    "ha-manager crm-command node-maintenance disable": frozenset(),
    "pvecm updatecerts": frozenset({"force", "silent"}),
    "qm unlock": frozenset(),
    "qm importdisk": frozenset({"format"}),
    "qm rescan": frozenset({"vmid", "dryrun"}),
    "qm disk rescan": frozenset({"vmid", "dryrun"}),
}
ANYTHING = "VALUE"  # stands for a value that the program inserts
OUTPUT = frozenset({"output-format", "noborder", "noheader", "quiet"})
END = re.compile(r"\s(?:on|shows|&&|;|\|)\s|[;,`|)]|\s#")


@cache
def schema(release: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"api-{release}.json").read_text())["api"]
    return found


def documents() -> Iterator[Path]:
    for name in DOCUMENTS:
        path = ROOT / name
        files = path.rglob("*") if path.is_dir() else [path]
        yield from (f for f in files if f.suffix in {".md", ".yaml", ".txt", ".tpl"} and f.exists())


def code_of_document(text: str) -> Iterator[str]:
    """Fenced blocks line by line (continued lines joined), and code in lines of text."""
    for block in re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def texts_of_source(path: Path) -> Iterator[str]:
    """Texts of a module that may show a command or a token; formatted values are not known."""
    source = path.read_text()
    if not MENTION.search(source):
        return
    tree = ast.parse(source)
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(value) for node in formatted for value in node.values}
    for node in formatted:
        values = (str(v.value) if isinstance(v, ast.Constant) else ANYTHING for v in node.values)
        yield "".join(values)
    for text in ast.walk(tree):
        known = isinstance(text, ast.Constant) and id(text) not in parts
        if isinstance(text, ast.Constant) and known and isinstance(text.value, str):
            yield text.value


def commands_in(text: str) -> Iterator[str]:
    """Complete commands of Proxmox in a text; a mention without arguments is none."""
    for match in re.finditer(rf"(?<![\w./-])(?:{'|'.join(PROGRAMS)}) [a-z]", text):
        rest = without_pipe(text[match.start() :].splitlines()[0])
        quoted = re.match(r"[^'\"]*(?:'[^']*'|\"[^\"]*\")?[^'\"]*", rest)
        assert quoted is not None
        command = quoted[0] if "'" in quoted[0] or '"' in quoted[0] else END.split(rest)[0]
        if name_of(command) and len(command.split()) > len(name_of(command).split()):
            yield command.strip().rstrip(".")


def without_pipe(line: str) -> str:
    """The first command of a pipeline; a bar between quotes is part of a command."""
    first = line.partition(" | ")[0]
    return line if first.count('"') % 2 or first.count("'") % 2 else first


def name_of(command: str) -> str:
    names = [n for n in {*COMMANDS, *LOCAL} if command == n or command.startswith(n + " ")]
    return max(names, key=len, default="")


@cache
def found_commands() -> tuple[tuple[str, str], ...]:
    found = []
    for path in documents():
        for code in code_of_document(path.read_text()):
            found += [(str(path.relative_to(ROOT)), c) for c in commands_in(code)]
    for path in (ROOT / "src" / "moxwell").rglob("*.py"):
        if "lab" in path.parts or "testing" in path.parts:
            continue
        for text in texts_of_source(path):
            found += [(str(path.relative_to(ROOT)), c) for c in commands_in(text)]
    user = "moxwell@pve"
    found += [("preflight", c) for major in (8, 9) for c in preflight.commands(major, user)]
    return tuple(dict.fromkeys(found))


def arguments(command: str) -> tuple[list[str], dict[str, str]]:
    """Positional values and options of a command without its name."""
    words = shlex.split(command)[len(name_of(command).split()) :]
    positional: list[str] = []
    options: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            options[name] = value if equals else "1"
            name = "" if equals else name
        elif name:
            options[name], name = word, ""
        else:
            positional.append(word)
    return positional, options


def complaints(api: Mapping[str, Any], command: str) -> Iterator[str]:
    """What Proxmox would refuse of a command."""
    name = name_of(command)
    positional, options = arguments(command)
    if name in LOCAL:
        yield from (f"{name} has no option {o}" for o in options.keys() - LOCAL[name])
        return
    method, path, names = COMMANDS[name]
    values = dict(zip(names, positional, strict=False)) | options
    if name.startswith("pvesh"):
        path = api_path(api, positional[0])
        values = {k: v for k, v in options.items() if k not in OUTPUT}
    rules = api.get(path, {}).get(method, {}).get("parameters")
    if rules is None:
        yield f"{method} {path or positional} does not exist"
        return
    for key, value in values.items():
        if key == ANYTHING:
            continue
        rule = rules.get(key) or rules.get(re.sub(r"\d+$", "[n]", key))
        if rule is None and key not in re.findall(r"{(\w+)}", path) and key not in OUTPUT:
            yield f"{method} {path} has no parameter {key}"
        elif rule is not None and (text := refused(rule, value)):
            yield f"{key}: {text}"


def api_path(api: Mapping[str, Any], given: str) -> str:
    parts = given.strip("/").split("/")
    fits = [
        t
        for t in api
        if len(t.strip("/").split("/")) == len(parts)
        and all(
            a.startswith("{") or a == b for a, b in zip(t.strip("/").split("/"), parts, strict=True)
        )
    ]
    return min(fits, key=lambda t: t.count("{"), default="")


def refused(rule: Mapping[str, Any], value: str) -> str:
    """Why a value breaks the rule of a parameter; empty if it does not."""
    if value in {"<VMID>", "VMID", "…"} or value.startswith("$") or ANYTHING in value:
        return ""
    pattern = rule.get("pattern", "").replace("(?^:", "(?:")
    if pattern and not re.fullmatch(pattern, value):
        return f"{value!r} does not match {pattern}"
    if rule.get("type") == "integer" and not re.fullmatch(r"-?\d+", value):
        return f"{value!r} is no integer"
    if rule.get("type") == "boolean" and value not in {"0", "1"}:
        return f"{value!r} is no boolean"
    if "enum" in rule and value not in rule["enum"]:
        return f"{value!r} is none of {rule['enum']}"
    if not rule.get("minLength", 0) <= len(value) <= rule.get("maxLength", 1 << 20):
        return f"{value!r} has a wrong length"
    return ""


needs_schema = pytest.mark.skipif(not FOLDER.exists(), reason="the API schemas are not here")


@needs_schema
@pytest.mark.parametrize("release", RELEASES)
def test_every_command_is_valid(release: str) -> None:
    found = found_commands()
    assert len(found) > 8
    wrong = {
        f"{where}: {command}": texts
        for where, command in found
        if (texts := list(complaints(schema(release), command)))
    }
    assert wrong == {}


def test_every_command_of_a_document_is_known() -> None:
    """A command that the tables do not have would not be checked."""
    start = re.compile(rf"(?<![\w./-])(?:{'|'.join(PROGRAMS)}) [a-z].*")
    known = (*COMMANDS, *LOCAL)
    unknown = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in documents()
        for code in code_of_document(path.read_text())
        for found in start.findall(code)
        if not name_of(found) and not any(name.startswith(found) for name in known)
    ]
    assert unknown == []


@needs_schema
def test_every_token_id_is_valid() -> None:
    """Proxmox wants two characters at least."""
    rules = schema("9.1")["/access/users/{userid}/token/{tokenid}"]["POST"]["parameters"]
    found = {
        (str(path.relative_to(ROOT)), *match)
        for path in (*documents(), *(ROOT / "src" / "moxwell").rglob("*.py"))
        for match in TOKEN.findall(path.read_text())
    }
    assert len(found) > 3
    wrong = [
        (where, user, token)
        for where, user, token in sorted(found)
        if refused(rules["tokenid"], token) or refused(rules["userid"], user)
    ]
    assert wrong == []


@needs_schema
@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("pveum user token add u@pve t --privsep 0", "tokenid"),
        ("pveum user token add u@pve tt --privsep no", "privsep"),
        ("pveum role add R --privileges x", "no parameter privileges"),
        ("qm destroy 100 --prune", "no parameter prune"),
        ("qm start abc", "vmid"),
        ("pvesh get /cluster/nothing", "does not exist"),
        ("qm unlock 100 --force", "no option force"),
    ],
)
def test_a_wrong_command_is_noticed(command: str, text: str) -> None:
    assert text in "; ".join(complaints(schema("9.1"), command))
