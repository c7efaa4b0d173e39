"""
What the first boot does with its user data: files, commands, and the join they amount to.

Cloud-config (with the jinja header of Cluster API's bootstrap data) and Ignition are read into one
:class:`Instructions`. ``find_join`` looks for what a shell would run: ``kubeadm join`` with a
configuration file that was written. Data that cannot be read is :class:`~moxwell.errors.Invalid`.
"""

import base64
import gzip
import json
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from moxwell.errors import Invalid
from moxwell.lab.guests.config_drive import Seed, not_yaml

_JINJA = re.compile(r"\{\{\s*([A-Za-z0-9_.\-]+)\s*\}\}")
_JOIN = re.compile(r"kubeadm\s+join\b[^\n;&|]*--config[ =](\S+)")
_SENTINEL = re.compile(r"/run/cluster-api/bootstrap-success\.complete")
_ENVSUBST = re.compile(r"envsubst\s*<\s*(\S+)")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
ENVIRONMENT = "/etc/proxmox-env"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
TAINTS: tuple[Mapping[str, Any], ...] = ({"key": CONTROL_PLANE, "effect": "NoSchedule"},)


@dataclass(frozen=True, slots=True)
class Instructions:
    """Files to write and commands to run, in order."""

    files: Mapping[str, str] = field(default_factory=dict, repr=False)  # tokens, keys
    commands: tuple[str, ...] = ()
    hostname: str = ""


@dataclass(frozen=True, slots=True)
class Join:
    """A kubeadm JoinConfiguration, as far as a node needs it."""

    endpoint: str
    token: str = field(repr=False)
    ca_hashes: tuple[str, ...]
    unsafe_skip_ca: bool
    node_name: str
    kubelet_args: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...] = ()
    sentinel: bool = False
    control_plane: bool = False


def read_user_data(seed: Seed) -> Instructions:
    """What the user data says, whatever its format."""
    text = seed.user_data
    if text.startswith("## template: jinja"):
        text = _render(text.partition("\n")[2], seed)
    if text.lstrip().startswith("{"):
        return _ignition(text)
    if not text.startswith("#cloud-config"):
        raise Invalid("user-data is neither #cloud-config nor Ignition")
    return _cloud_config(text, seed)


def _render(text: str, seed: Seed) -> str:
    """The few variables that bootstrap data uses; an unknown one stops cloud-init, and us."""
    plain = {key.replace("-", "_"): str(value) for key, value in seed.meta_data.items()}
    known = {f"ds.meta_data.{key}": value for key, value in plain.items()}
    known |= {"v1.local_hostname": seed.hostname, "local_hostname": seed.hostname}
    known |= {"v1.instance_id": plain.get("instance_id", "")}

    def value(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise Invalid(f"user-data names the unknown variable {match[1]}")
        return known[match[1]]

    return _JINJA.sub(value, text)


def _cloud_config(text: str, seed: Seed) -> Instructions:
    try:
        config = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise not_yaml("user-data", error) from None
    if not isinstance(config, dict):
        raise Invalid("user-data is not a mapping")
    files = {str(f["path"]): _content(f) for f in config.get("write_files") or () if "path" in f}
    commands = [*(config.get("bootcmd") or ()), *(config.get("runcmd") or ())]
    hostname = str(config.get("hostname") or seed.hostname)
    return Instructions(files, tuple(_command(c) for c in commands), hostname)


def _content(file: Mapping[str, Any]) -> str:
    content = file.get("content") or ""
    raw = content.encode() if isinstance(content, str) else bytes(content)
    encoding = str(file.get("encoding") or "")
    if encoding in {"b64", "base64", "gz+b64", "gz+base64", "gzip+b64", "gzip+base64"}:
        raw = base64.b64decode(raw)
    if encoding.startswith(("gz", "gzip")):
        raw = gzip.decompress(raw)
    return raw.decode(errors="replace")


def _command(command: Any) -> str:
    return " ".join(map(str, command)) if isinstance(command, list) else str(command)


def _ignition(text: str) -> Instructions:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise Invalid(f"user-data is not JSON: {error}") from error
    if "ignition" not in config:
        raise Invalid("user-data is JSON but not Ignition")
    found = config.get("storage", {}).get("files", [])
    files = {f["path"]: _data_url(f.get("contents", {}).get("source", "")) for f in found}
    units = [u for u in config.get("systemd", {}).get("units", []) if u.get("enabled", True)]
    commands = [line for unit in units for line in _exec_lines(unit.get("contents", ""), files)]
    hostname = files.get("/etc/hostname", "").strip()
    return Instructions(_substituted(files, "\n".join(commands)), tuple(commands), hostname)


def _substituted(files: Mapping[str, str], script: str) -> dict[str, str]:
    """What ``envsubst < FILE`` in the script makes of files, with the environment of Proxmox."""
    lines = (line.partition("=") for line in files.get(ENVIRONMENT, "").splitlines())
    known = {name.strip(): value.strip() for name, _, value in lines}
    wanted = set(_ENVSUBST.findall(script))
    return {
        path: _VARIABLE.sub(lambda m: known.get(m[1], ""), text) if path in wanted else text
        for path, text in files.items()
    }


def _exec_lines(unit: str, files: Mapping[str, str]) -> list[str]:
    """What a unit runs; a script that Ignition wrote is looked into."""
    started = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart")]
    return [files.get(line.split()[-1], line) if line.split() else line for line in started]


def _data_url(source: str) -> str:
    head, _, data = source.partition(",")
    if not head.startswith("data:"):
        return ""
    if head.endswith(";base64"):
        return base64.b64decode(data).decode(errors="replace")
    return urllib.parse.unquote(data)


def find_join(instructions: Instructions) -> Join | None:
    """The join that the commands ask for; None where they ask for none."""
    script = "\n".join([*instructions.commands, *instructions.files.values()])
    asked = _JOIN.search(script)
    if asked is None:
        return None
    path = asked[1].strip("\"'")
    if path not in instructions.files:
        raise Invalid(f"kubeadm join reads {path}, which nobody wrote")
    return _join(instructions, path, sentinel=has_sentinel(instructions))


def has_sentinel(instructions: Instructions) -> bool:
    """Whether success is written where Cluster API looks for it."""
    script = "\n".join([*instructions.commands, *instructions.files.values()])
    return bool(_SENTINEL.search(script))


def read_documents(text: str, path: str) -> dict[str, Any]:
    """The documents of a file of kubeadm, by kind."""
    try:
        found = [d for d in yaml.safe_load_all(text) if isinstance(d, dict)]
    except yaml.YAMLError as error:
        raise not_yaml(path, error) from None
    return {str(d.get("kind")): d for d in found}


def _join(instructions: Instructions, path: str, *, sentinel: bool) -> Join:
    config = read_documents(instructions.files[path], path).get("JoinConfiguration")
    if config is None:
        raise Invalid(f"{path} holds no JoinConfiguration")
    token = (config.get("discovery") or {}).get("bootstrapToken") or {}
    node = config.get("nodeRegistration") or {}
    member = config.get("controlPlane") is not None
    if not token.get("apiServerEndpoint") or not token.get("token"):
        raise Invalid(f"{path} names no API server or no token")
    return Join(
        endpoint=str(token["apiServerEndpoint"]),
        token=str(token["token"]),
        ca_hashes=tuple(token.get("caCertHashes") or ()),
        unsafe_skip_ca=bool(token.get("unsafeSkipCAVerification")),
        node_name=str(node.get("name") or instructions.hostname),
        kubelet_args=kubelet_args(node.get("kubeletExtraArgs")),
        taints=control_plane_taints(node.get("taints"))
        if member
        else tuple(node.get("taints") or ()),
        sentinel=sentinel,
        control_plane=member,
    )


def control_plane_taints(given: Any) -> tuple[Mapping[str, Any], ...]:
    """kubeadm taints a control plane unless it is told an explicit (even empty) list."""
    return TAINTS if given is None else tuple(given)


def kubelet_args(given: Any) -> Mapping[str, str]:
    """kubeadm v1beta3 has a mapping here, v1beta4 a list of names and values."""
    if isinstance(given, list):
        return {str(a.get("name")): str(a.get("value", "")) for a in given}
    return {str(key): str(value) for key, value in (given or {}).items()}
