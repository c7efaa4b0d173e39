"""
Interprets user-data on first boot: files, commands and the kubeadm invocation among them.

Parses cloud-config (with the jinja header of Cluster API's bootstrap data), Ignition and Talos into
:class:`ParsedUserData`. ``find_join`` finds the ``kubeadm join`` command and reads the
configuration file it names. Raises :class:`~moxwell.errors.Invalid` for unreadable data.
"""

import base64
import gzip
import io
import json
import re
import urllib.parse
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from moxwell import yaml_documents
from moxwell.errors import Invalid
from moxwell.lab.guests.config_drive import ConfigDrive, yaml_error

_JINJA = re.compile(r"\{\{\s*([A-Za-z0-9_.\-]+)\s*\}\}")
_COMMAND_END = re.compile(r"[\n;&|]")
_JOIN = re.compile(r"kubeadm\s+join\b")
_CONFIG = re.compile(r"--config[ =](\S+)")
_SENTINEL = re.compile(r"/run/cluster-api/bootstrap-success\.complete")
_ENVSUBST = re.compile(r"envsubst\s*<\s*(\S+)")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_RESULT = re.compile(r"^[ \t]*echo (\S+) > (/run/\S+)$", re.MULTILINE)
MAX_UNPACKED = 16 << 20  # bytes of all files of a cloud-config that are compressed
PER_BOOT = "/var/lib/cloud/scripts/per-boot/"
ENVIRONMENT = "/etc/proxmox-env"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
TAINTS: tuple[Mapping[str, Any], ...] = ({"key": CONTROL_PLANE, "effect": "NoSchedule"},)


@dataclass(frozen=True, slots=True)
class KubeadmJoin:
    """The fields of a kubeadm JoinConfiguration that a node needs."""

    endpoint: str
    token: str = field(repr=False)
    ca_hashes: tuple[str, ...]
    unsafe_skip_ca: bool
    node_name: str
    kubelet_args: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...] = ()
    sentinel: bool = False
    control_plane: bool = False
    ca: str = ""  # known without discovery


@dataclass(frozen=True, slots=True)
class ParsedUserData:
    """Files to write and commands to run, in order."""

    files: Mapping[str, str] = field(default_factory=dict, repr=False)  # contains tokens and keys
    commands: tuple[str, ...] = ()
    hostname: str = ""
    join: KubeadmJoin | None = None  # without kubeadm


def read_user_data(config_drive: ConfigDrive) -> ParsedUserData:
    """Parse the user-data, cloud-config or Ignition."""
    text = config_drive.user_data
    if text.startswith("## template: jinja"):
        text = _render(text.partition("\n")[2], config_drive)
    if text.lstrip().startswith("{"):
        return _ignition(text)
    if not text.startswith("#cloud-config"):
        return _talos(text, config_drive)
    return _cloud_config(text, config_drive)


def result_of_scripts(user_data: ParsedUserData) -> dict[str, str]:
    """
    The file that a script at every boot writes when it succeeds; empty without such a script.

    The guests of the lab install nothing: the first ``echo WORD > /run/FILE`` is its success.
    """
    if not any(path.startswith(PER_BOOT) for path in user_data.files):
        return {}
    found = (_RESULT.search(text) for text in user_data.files.values())
    return {match[2]: f"{match[1]}\n" for match in found if match}


def _render(text: str, config_drive: ConfigDrive) -> str:
    """Replace jinja variables; raises Invalid for an unknown one, as cloud-init does."""
    plain = {key.replace("-", "_"): str(value) for key, value in config_drive.meta_data.items()}
    known = {f"ds.meta_data.{key}": value for key, value in plain.items()}
    known |= {"v1.local_hostname": config_drive.hostname, "local_hostname": config_drive.hostname}
    known |= {"v1.instance_id": plain.get("instance_id", "")}

    def value(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise Invalid(f"user-data names the unknown variable {match[1]}")
        return known[match[1]]

    return _JINJA.sub(value, text)


def _cloud_config(text: str, config_drive: ConfigDrive) -> ParsedUserData:
    try:
        config = yaml_documents.load(text) or {}
    except yaml.YAMLError as error:
        raise yaml_error("user-data", error) from None
    if not isinstance(config, dict):
        raise Invalid("user-data is not a mapping")
    files = _files(config.get("write_files") or ())
    commands = [*(config.get("bootcmd") or ()), *(config.get("runcmd") or ())]
    hostname = str(config.get("hostname") or config_drive.hostname)
    return ParsedUserData(files, tuple(_command(c) for c in commands), hostname)


def _files(listed: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The texts of ``write_files``; their size is limited, as they may be compressed."""
    files: dict[str, str] = {}
    left = MAX_UNPACKED
    for file in listed:
        if "path" in file:
            text = files[str(file["path"])] = _content(file, left)
            left -= len(text)
    return files


def _content(file: Mapping[str, Any], most: int) -> str:
    content = file.get("content") or ""
    raw = content.encode() if isinstance(content, str) else bytes(content)
    encoding = str(file.get("encoding") or "")
    if encoding in {"b64", "base64", "gz+b64", "gz+base64", "gzip+b64", "gzip+base64"}:
        raw = base64.b64decode(raw)
    if encoding.startswith(("gz", "gzip")):
        raw = _unpacked(raw, most)
    return raw.decode(errors="replace")


def _unpacked(raw: bytes, most: int) -> bytes:
    try:
        found = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(most + 1)
    except (OSError, EOFError, zlib.error):
        raise Invalid("a file of the user-data is not gzip") from None
    if len(found) > most:
        raise Invalid(f"the files of the user-data have more than {MAX_UNPACKED} bytes unpacked")
    return found


def _command(command: Any) -> str:
    return " ".join(map(str, command)) if isinstance(command, list) else str(command)


def _talos(text: str, config_drive: ConfigDrive) -> ParsedUserData:
    """A Talos worker: its kubelet joins with CA and token of the machine configuration."""
    config = talos_document(text)
    if config is None or config["machine"].get("type") not in ("worker", "controlplane"):
        raise Invalid("user-data is neither #cloud-config nor Ignition nor a Talos node")
    machine = config["machine"]
    try:
        hostname = str((machine.get("network") or {}).get("hostname") or config_drive.hostname)
        if machine["type"] == "controlplane":  # moxwell.lab.guests.talos reads it
            return ParsedUserData(hostname=hostname)
        cluster = config["cluster"]
        join = KubeadmJoin(
            endpoint=str(cluster["controlPlane"]["endpoint"]),
            token=str(cluster["token"]),
            ca_hashes=(),
            unsafe_skip_ca=False,
            node_name=hostname,
            kubelet_args=talos_kubelet_args(machine["kubelet"]),
            taints=tuple(
                (machine["kubelet"].get("extraConfig") or {}).get("registerWithTaints", ())
            ),
            ca=base64.b64decode(cluster["ca"]["crt"]).decode(),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Invalid(f"the Talos machine configuration is incomplete: {error}") from None
    return ParsedUserData(hostname=join.node_name, join=join)


def talos_document(text: str) -> dict[str, Any] | None:
    """The document of a Talos machine configuration with its main section; None without one."""
    if text.startswith(("#cloud-config", "## template: jinja")) or text.lstrip().startswith("{"):
        return None
    try:
        documents = [d for d in yaml_documents.load_all(text) if isinstance(d, dict)]
    except yaml.YAMLError as error:
        raise yaml_error("user-data", error) from None
    return next((d for d in documents if isinstance(d.get("machine"), dict)), None)


def talos_kubelet_args(kubelet: Mapping[str, Any]) -> Mapping[str, str]:
    """The arguments, and the provider ID of the KubeletConfiguration, which they override."""
    provider_id = (kubelet.get("extraConfig") or {}).get("providerID")
    own = {"provider-id": str(provider_id)} if provider_id else {}
    return own | dict(kubelet_args(kubelet.get("extraArgs")))


def _ignition(text: str) -> ParsedUserData:
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
    return ParsedUserData(_envsubst(files, "\n".join(commands)), tuple(commands), hostname)


def _envsubst(files: Mapping[str, str], script: str) -> dict[str, str]:
    """Apply ``envsubst < FILE`` of the script, with the variables of ``/etc/proxmox-env``."""
    lines = (line.partition("=") for line in files.get(ENVIRONMENT, "").splitlines())
    known = {name.strip(): value.strip() for name, _, value in lines}
    wanted = set(_ENVSUBST.findall(script))
    return {
        path: _VARIABLE.sub(lambda m: known.get(m[1], ""), text) if path in wanted else text
        for path, text in files.items()
    }


def _exec_lines(unit: str, files: Mapping[str, str]) -> list[str]:
    """The commands of a systemd unit; a script that Ignition wrote is replaced by its content."""
    started = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart")]
    return [files.get(line.split()[-1], line) if line.split() else line for line in started]


def _data_url(source: str) -> str:
    head, _, data = source.partition(",")
    if not head.startswith("data:"):
        return ""
    if head.endswith(";base64"):
        return base64.b64decode(data).decode(errors="replace")
    return urllib.parse.unquote(data)


def find_join(parsed: ParsedUserData) -> KubeadmJoin | None:
    """Find the ``kubeadm join`` in the user-data; None if there is none."""
    if parsed.join is not None:
        return parsed.join
    script = "\n".join([*parsed.commands, *parsed.files.values()])
    path = kubeadm_config(script, _JOIN)
    if path is None:
        return None
    if path not in parsed.files:
        raise Invalid(f"kubeadm join reads {path}, which the user-data does not write")
    return _run_join(parsed, path, sentinel=has_sentinel(parsed))


def kubeadm_config(script: str, kubeadm: re.Pattern[str]) -> str | None:
    """The configuration file of the first such command that has one; takes linear time."""
    for command in _COMMAND_END.split(script):
        start = kubeadm.search(command)
        if start is not None and (found := _CONFIG.findall(command, start.end())):
            return str(found[-1]).strip("\"'")
    return None


def has_sentinel(parsed: ParsedUserData) -> bool:
    """Whether a command writes the bootstrap sentinel file of Cluster API."""
    script = "\n".join([*parsed.commands, *parsed.files.values()])
    return bool(_SENTINEL.search(script))


def read_documents(text: str, path: str) -> dict[str, Any]:
    """Parse a kubeadm configuration file; returns its documents by kind."""
    try:
        found = [d for d in yaml_documents.load_all(text) if isinstance(d, dict)]
    except yaml.YAMLError as error:
        raise yaml_error(path, error) from None
    return {str(d.get("kind")): d for d in found}


def _run_join(parsed: ParsedUserData, path: str, *, sentinel: bool) -> KubeadmJoin:
    config = read_documents(parsed.files[path], path).get("JoinConfiguration")
    if config is None:
        raise Invalid(f"{path} contains no JoinConfiguration")
    token = (config.get("discovery") or {}).get("bootstrapToken") or {}
    node = config.get("nodeRegistration") or {}
    member = config.get("controlPlane") is not None
    if not token.get("apiServerEndpoint") or not token.get("token"):
        raise Invalid(f"{path} names no API server or no token")
    return KubeadmJoin(
        endpoint=str(token["apiServerEndpoint"]),
        token=str(token["token"]),
        ca_hashes=tuple(token.get("caCertHashes") or ()),
        unsafe_skip_ca=bool(token.get("unsafeSkipCAVerification")),
        node_name=str(node.get("name") or parsed.hostname),
        kubelet_args=kubelet_args(node.get("kubeletExtraArgs")),
        taints=control_plane_taints(node.get("taints"))
        if member
        else tuple(node.get("taints") or ()),
        sentinel=sentinel,
        control_plane=member,
    )


def control_plane_taints(given: Any) -> tuple[Mapping[str, Any], ...]:
    """The configured taints; by default kubeadm taints control plane nodes."""
    return TAINTS if given is None else tuple(given)


def kubelet_args(given: Any) -> Mapping[str, str]:
    """The kubelet arguments: a mapping in kubeadm v1beta3, a list in v1beta4."""
    if isinstance(given, list):
        return {str(a.get("name")): str(a.get("value", "")) for a in given}
    return {str(key): str(value) for key, value in (given or {}).items()}
