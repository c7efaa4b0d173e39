"""
Configuration of the regions: URLs, credentials, TLS, zones; from one YAML file or a Secret.

It reads the file of the Karpenter, CSI and CCM projects for Proxmox (``clusters: [...]``) and the
Secret of CAPMOX (``url``, ``token``, ``secret``, ``insecure``, ``root_ca``) into one
``RegionConfig`` per region. A wrong or unknown key is an error that names it. CAPMOX takes a
missing ``insecure`` as true; Moxwell verifies TLS unless ``insecure`` is set.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import msgspec

from moxwell import config_file
from moxwell.config_file import InvalidConfig
from moxwell.pve.values import SecretValue

KEYS = frozenset(
    {
        "url", "urls", "insecure", "token_id", "token_secret", "token_id_file",
        "token_secret_file", "username", "password", "password_file", "region", "zones",
        "ca_file", "fingerprint", "concurrency", "pool",
    }
)  # fmt: skip
SECRET_KEYS = frozenset({"url", "token", "secret", "insecure", "root_ca", "fingerprint"})
OLD_KEYS = {"genuine_planes": "control_plane_binaries"}  # read under both names
TOP_KEYS = frozenset(
    {"clusters", "features", "control_plane_binaries", "control_planes", "management_cluster"}
    | {*OLD_KEYS}
)
_REGION = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_POOL = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,2}")
_TOKEN_ID = re.compile(r"[^\s!]+![^\s!=]+")  # upstream samples leave the realm out


class TokenAuth(msgspec.Struct, frozen=True):
    """An API token: ``user@realm!name`` and its secret."""

    token_id: str
    secret: SecretValue


class PasswordAuth(msgspec.Struct, frozen=True):
    """A user with a password, who gets a ticket that expires."""

    username: str
    password: SecretValue


class RegionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach one Proxmox VE cluster."""

    region: str
    urls: tuple[str, ...]  # without /api2/json; the first is preferred
    auth: TokenAuth | PasswordAuth
    insecure: bool = False
    ca_pem: str = ""
    fingerprint: str = ""  # SHA-256, lower-case hex without colons
    zones: dict[str, tuple[str, ...]] = {}
    concurrency: int = 12
    pool: str = ""  # resource pool that the token is limited to

    @property
    def is_root(self) -> bool:
        """Whether the login is root@pam with a password, which alone may do some things."""
        return isinstance(self.auth, PasswordAuth) and self.auth.username == "root@pam"

    def zone_of(self, host: str) -> str:
        """Return the zone of a host: the group that lists it, else the host's own name."""
        for zone, hosts in self.zones.items():
            if host in hosts:
                return zone
        return host

    def hosts_of(self, zone: str) -> tuple[str, ...]:
        """Return the hosts of a zone; a zone that the configuration does not list is a host."""
        return self.zones.get(zone, (zone,))


ReadText = Callable[[str], str]


def _read_file(name: str) -> str:
    return config_file.read_text(Path(name))


def load(path: Path, *, empty: bool = False) -> tuple[RegionConfig, ...]:
    """Read the configuration file, and the files it names relative to its folder."""
    folder, text = path.parent, _read_file(str(path))
    return parse(text, read=lambda name: _read_file(str(folder / name)), empty=empty)


def control_plane_binaries(path: Path) -> str:
    """
    Return ``installed``, a folder of binaries, ``no``, or empty if the file does not set the key.
    """
    document = config_file.parse_yaml(_read_file(str(path)))
    tree = document if isinstance(document, dict) else {}
    key = next((k for k in ("control_plane_binaries", *OLD_KEYS) if k in tree), "")
    value = tree.get(key, "")
    if isinstance(value, bool):
        return "installed" if value else "no"
    if not isinstance(value, str) or (value and not (path.parent / value).is_dir()):
        raise InvalidConfig(f"configuration: {key} must be true, false or a folder")
    return str((path.parent / value).resolve()) if value else ""


def parse(
    text: str, *, read: ReadText = _read_file, empty: bool = False
) -> tuple[RegionConfig, ...]:
    """Parse all regions of a configuration text; ``empty`` permits none."""
    clusters = _clusters(config_file.parse_yaml(text), empty)
    regions = tuple(
        _Block(f"clusters[{n}]", block, read).region() for n, block in enumerate(clusters)
    )
    names = [region.region for region in regions]
    for name in names:
        if names.count(name) > 1:
            raise InvalidConfig(f"configuration: region {name!r} is configured twice")
    return regions


def _clusters(document: object, empty: bool) -> list[Any]:
    if empty and document is None:
        return []
    if not isinstance(document, dict):
        raise InvalidConfig("configuration: must be a mapping with the key 'clusters'")
    config_file.refuse_unknown("configuration", document, TOP_KEYS)
    clusters = document.get("clusters")
    if empty and not clusters and isinstance(clusters, list | None):
        return []
    if not isinstance(clusters, list) or not clusters:
        raise InvalidConfig("configuration: 'clusters' must be a list with at least one region")
    return clusters


def from_secret(region: str, data: Mapping[str, str]) -> RegionConfig:
    """Return the region that a CAPMOX Secret describes; ``data`` is already decoded."""
    where = f"secret of region {region}"
    config_file.refuse_unknown(where, data, SECRET_KEYS)
    block = {
        "region": region,
        "url": data.get("url", ""),
        "token_id": data.get("token", ""),
        "token_secret": data.get("secret", ""),
        "insecure": data.get("insecure", ""),
        "fingerprint": data.get("fingerprint", ""),
    }
    config = _Block(where, block, _read_file).region()
    return msgspec.structs.replace(config, ca_pem=data.get("root_ca", ""))


class _Block:
    """One entry of ``clusters``; its errors name their place in the file."""

    def __init__(self, where: str, block: object, read: ReadText) -> None:
        self.where = where
        if not isinstance(block, Mapping):
            raise InvalidConfig(f"{where}: must be a mapping")
        self.block: Mapping[str, object] = block
        self.read = read
        config_file.refuse_unknown(where, block, KEYS)

    def fail(self, text: str) -> NoReturn:
        raise InvalidConfig(f"{self.where}: {text}")

    def region(self) -> RegionConfig:
        name = self.text("region")
        if not _REGION.fullmatch(name):
            self.fail("region must be 1 to 63 letters, digits, '-', '_' or '.'")
        ca_file = self.text("ca_file")
        return RegionConfig(
            region=name,
            urls=self.urls(),
            auth=self.auth(),
            insecure=self.flag("insecure"),
            ca_pem=self.read(ca_file) if ca_file else "",
            fingerprint=self.fingerprint(),
            zones=self.zones(),
            concurrency=self.number("concurrency", 12),
            pool=self.pool(),
        )

    def text(self, key: str) -> str:
        value = self.block.get(key)
        if value is None:
            return ""
        if not isinstance(value, str | int):
            self.fail(f"{key} must be a text")
        return str(value).strip()

    def number(self, key: str, default: int) -> int:
        value = self.block.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 256:
            self.fail(f"{key} must be a number from 1 to 256")
        return value

    def flag(self, key: str) -> bool:
        return config_file.parse_flag(f"{self.where}: {key}", self.block.get(key))

    def pool(self) -> str:
        pool = self.text("pool")
        if pool and not _POOL.fullmatch(pool):
            self.fail("pool must be a resource pool such as kubernetes or kubernetes/tenants")
        return pool

    def urls(self) -> tuple[str, ...]:
        several = self.block.get("urls", [])
        if not isinstance(several, list) or not all(isinstance(url, str) for url in several):
            self.fail("urls must be a list of texts")
        one = self.text("url")
        urls = tuple(dict.fromkeys(self.url(u) for u in ([one] if one else []) + several))
        return urls or self.fail("url or urls is missing")

    def url(self, url: str) -> str:
        parts = urlsplit(url.strip())
        if parts.scheme not in {"https", "http"} or not parts.hostname:
            self.fail("a url must look like https://host:8006/api2/json")
        if parts.username or parts.password or parts.query or parts.fragment:
            self.fail("a url must hold neither credentials nor a query")
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/api2/json')}"

    def secret(self, key: str) -> str:
        """Return the value of ``key``, or the content of the file that ``key_file`` names."""
        value, file = self.text(key), self.text(f"{key}_file")
        if value and file:
            self.fail(f"give {key} or {key}_file, not both")
        found = self.read(file).strip() if file else value
        if not found.isprintable():
            self.fail(f"{key} contains characters that are not valid in credentials")
        return found

    def auth(self) -> TokenAuth | PasswordAuth:
        token_id, secret = self.secret("token_id"), self.secret("token_secret")
        username, password = self.text("username"), self.secret("password")
        if (token_id or secret) and (username or password):
            self.fail("give a token or a user, not both")
        if username and password:
            return PasswordAuth(username, SecretValue(password))
        if not token_id or not secret:
            self.fail("token_id and token_secret, or username and password, are missing")
        if not _TOKEN_ID.fullmatch(token_id):
            self.fail("token_id must look like user@realm!name")
        return TokenAuth(token_id, SecretValue(secret))

    def fingerprint(self) -> str:
        text = self.text("fingerprint").replace(":", "").lower()
        if text and not re.fullmatch(r"[0-9a-f]{64}", text):
            self.fail("fingerprint must be a SHA-256: 64 hex digits, colons allowed")
        return text

    def zones(self) -> dict[str, tuple[str, ...]]:
        zones = self.block.get("zones") or {}
        if not isinstance(zones, Mapping):
            self.fail("zones must map a zone to a list of hosts")
        taken: set[str] = set()
        for zone, hosts in zones.items():
            if not isinstance(hosts, list) or not all(isinstance(h, str) for h in hosts):
                self.fail(f"zones.{zone} must be a list of hosts")
            if taken & set(hosts):
                self.fail(f"zones.{zone}: {', '.join(sorted(taken & set(hosts)))} is in two zones")
            taken |= set(hosts)
        return {str(zone): tuple(hosts) for zone, hosts in zones.items()}
