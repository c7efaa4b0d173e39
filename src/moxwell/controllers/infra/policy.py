"""
What the operator allows to users who create clusters: adoption of guests, own credentials, clones.

Pure. Without settings a cluster adopts no guest by providerID alone, names Secrets of its own
namespace only, or others with a ReferenceGrant, and may connect to any host.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from moxwell import config_file
from moxwell.errors import Denied, Invalid

FULL_CLONES = 4
DEFAULT_PORTS = {"https": 443, "http": 80}


class HostNotAllowed(Denied):
    """The operator does not allow credentials for this server."""

    reason = "HostNotAllowed"


@dataclass(frozen=True, slots=True)
class InfraPolicy:
    """The settings of the operator."""

    adopt_guests: tuple[str, ...] = ()  # patterns of namespace/cluster
    credential_hosts: tuple[str, ...] = ()  # patterns of host or host:port; empty: every host
    cross_namespace_credentials: bool = False  # as upstream: no ReferenceGrant needed
    full_clones: int = FULL_CLONES  # at once on one host or storage

    def __post_init__(self) -> None:
        for pattern in self.adopt_guests:
            if pattern.count("/") != 1:
                raise Invalid(f"a cluster is given as namespace/name, not as {pattern!r}")

    @classmethod
    def parse(cls, text: str) -> "InfraPolicy":
        """The policy in the ``features`` of a configuration file."""
        features = config_file.parse_mapping(text).get("features") or {}
        return cls(
            adopt_guests=_texts(features, "adoptGuests"),
            credential_hosts=_texts(features, "credentialHosts"),
            cross_namespace_credentials=features.get("crossNamespaceCredentials") is True,
            full_clones=_count(features, "fullClones", FULL_CLONES),
        )

    def refuse_urls(self, urls: tuple[str, ...]) -> None:
        """Raise HostNotAllowed unless every URL matches a pattern."""
        for url in urls if self.credential_hosts else ():
            if not any(_matches(url, pattern) for pattern in self.credential_hosts):
                allowed = ", ".join(self.credential_hosts)
                raise HostNotAllowed(
                    f"credentials for the server {_server(url)} are not allowed; the operator "
                    f"allows {allowed}"
                )


def _count(features: Mapping[str, Any], key: str, default: int) -> int:
    given = features.get(key, default)
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise Invalid(f"features.{key} must be a number above zero")
    return given


def _texts(features: Mapping[str, Any], key: str) -> tuple[str, ...]:
    given = features.get(key) or []
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise Invalid(f"features.{key} must be a list of texts")
    return tuple(given)


def _server(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname or ''}:{parts.port or DEFAULT_PORTS.get(parts.scheme, 443)}"


def _matches(url: str, pattern: str) -> bool:
    server = _server(url).lower()
    host, _, port = pattern.lower().rpartition(":") if _has_port(pattern) else (pattern, "", "*")
    return fnmatchcase(server.rpartition(":")[0], host.strip("[]").lower()) and fnmatchcase(
        server.rpartition(":")[2], port
    )


def _has_port(pattern: str) -> bool:
    """Return whether a pattern ends with a port; an IPv6 address has brackets then."""
    host, colon, port = pattern.rpartition(":")
    return bool(colon) and (port == "*" or port.isdigit()) and (":" not in host or "]" in host)
