"""
Kubeconfig files, and the files of a pod: from where and as whom an apiserver is reached.

In: paths (several are merged, the first that names something wins), a context, the environment as
a mapping; out: an ``Access``, all that :mod:`moxwell.kube.transport` needs. Relative paths count
from the file that holds them. Nothing is read from ``os.environ`` here: the caller passes it.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import Struct
from msgspec import field as named

from moxwell.clock import Clock
from moxwell.errors import Invalid, Missing
from moxwell.kube import credentials
from moxwell.kube.credentials import Credentials, Fixed, Identity, Secret

POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where an apiserver is, how it proves itself, and as whom to ask."""

    server: str
    credentials: Credentials = field(default_factory=Fixed)
    ca: str = ""
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    namespace: str = "default"


class BadKubeconfig(Invalid):
    """A kubeconfig that cannot be used."""

    reason = "InvalidKubeconfig"


class NoKubeconfig(Missing):
    """There is no kubeconfig, or it lacks what was asked for."""

    reason = "KubeconfigMissing"


class _Strict(Struct, frozen=True, kw_only=True, rename="kebab"):
    pass


class Cluster(_Strict, frozen=True, kw_only=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class EnvVar(Struct, frozen=True, kw_only=True):
    name: str
    value: str = ""


class ExecSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    command: str
    args: tuple[str, ...] | None = ()
    env: tuple[EnvVar, ...] | None = ()
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    provide_cluster_info: bool = False


class User(_Strict, frozen=True, kw_only=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = named(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    exec: ExecSpec | None = None


class Context(_Strict, frozen=True, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(Struct, frozen=True, kw_only=True):
    name: str
    cluster: Cluster | None = None


class NamedUser(Struct, frozen=True, kw_only=True):
    name: str
    user: User | None = None


class NamedContext(Struct, frozen=True, kw_only=True):
    name: str
    context: Context | None = None


class Config(_Strict, frozen=True, kw_only=True):
    """One file as it is written."""

    current_context: str = ""
    clusters: tuple[NamedCluster, ...] | None = ()
    users: tuple[NamedUser, ...] | None = ()
    contexts: tuple[NamedContext, ...] | None = ()


V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """Several files as one; each entry remembers the folder of its file."""

    current: str
    clusters: Mapping[str, tuple[Cluster, Path]] = field(repr=False)
    users: Mapping[str, tuple[User, Path]] = field(repr=False)
    contexts: Mapping[str, Context]

    def access(self, clock: Clock, environ: Mapping[str, str], context: str = "") -> Access:
        """How to reach the cluster of a context, the current one unless named."""
        name = context or self.current
        if not name:
            raise NoKubeconfig("the kubeconfig has no current context: name one")
        chosen = _entry(self.contexts, name, "context")
        cluster, at = _entry(self.clusters, chosen.cluster, "cluster")
        user, home = self.users.get(chosen.user, (User(), Path()))
        if chosen.user and chosen.user not in self.users:
            _entry(self.users, chosen.user, "user")
        if not cluster.server:
            raise BadKubeconfig(f"the cluster {chosen.cluster!r} in the kubeconfig has no server")
        ca = _inline_or_file(cluster.certificate_authority_data, cluster.certificate_authority, at)
        return Access(
            server=cluster.server.rstrip("/"),
            credentials=_credentials(user, home, clock, environ, _info(cluster, ca)),
            ca=ca,
            insecure=cluster.insecure_skip_tls_verify,
            server_name=cluster.tls_server_name,
            proxy=cluster.proxy_url,
            namespace=chosen.namespace or "default",
        )


def load(paths: Sequence[Path]) -> Kubeconfig:
    """Read and merge files; absent ones are skipped, as kubectl does, unless all are."""
    present = [path for path in paths if path.exists()]
    if not present:
        raise NoKubeconfig(f"no kubeconfig at {', '.join(map(str, paths)) or 'no path'}")
    return _merged([(_read(path), path.resolve().parent) for path in present])


def parse(text: str | bytes, home: Path = Path()) -> Kubeconfig:
    """A kubeconfig that is not in a file, such as one in a Secret."""
    return _merged([(_config(text, "the kubeconfig"), home)])


def in_cluster(clock: Clock, environ: Mapping[str, str], folder: Path = POD) -> Access:
    """How a pod reaches its own cluster."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not (folder / "token").exists():
        raise NoKubeconfig("this is not a pod: no service host or no token file")
    shown = f"[{host}]" if ":" in host else host
    space = folder / "namespace"
    return Access(
        server=f"https://{shown}:{port or 443}",
        credentials=credentials.TokenFile(folder / "token", clock),
        ca=(folder / "ca.crt").read_text(),
        namespace=space.read_text().strip() if space.exists() else "default",
    )


def find(clock: Clock, environ: Mapping[str, str], path: str = "", context: str = "") -> Access:
    """As kubectl looks: the path given, else KUBECONFIG, else ~/.kube/config, else the pod."""
    listed = path or environ.get("KUBECONFIG", "")
    if listed:
        places = [Path(part) for part in listed.split(":" if not path else "\0") if part]
        return load(places).access(clock, environ, context)
    default = Path(environ.get("HOME", "/")) / ".kube" / "config"
    if default.exists() or "KUBERNETES_SERVICE_HOST" not in environ:
        return load([default]).access(clock, environ, context)
    return in_cluster(clock, environ)


def _read(path: Path) -> Config:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadKubeconfig(f"cannot read {path}: {error.strerror}") from error
    return _config(text, str(path))


def _config(text: str | bytes, what: str) -> Config:
    try:
        return msgspec.convert(yaml.safe_load(text) or {}, Config)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" near line {mark.line + 1}" if mark else ""
        raise BadKubeconfig(f"{what} is not YAML{where}") from None
    except msgspec.ValidationError as error:
        raise BadKubeconfig(f"{what} is no kubeconfig: {error}") from error


def _merged(files: Sequence[tuple[Config, Path]]) -> Kubeconfig:
    clusters: dict[str, tuple[Cluster, Path]] = {}
    users: dict[str, tuple[User, Path]] = {}
    contexts: dict[str, Context] = {}
    for config, home in files:
        for c in config.clusters or ():
            clusters.setdefault(c.name, (c.cluster or Cluster(), home))
        for u in config.users or ():
            users.setdefault(u.name, (u.user or User(), home))
        for x in config.contexts or ():
            contexts.setdefault(x.name, x.context or Context())
    current = next((c.current_context for c, _ in files if c.current_context), "")
    return Kubeconfig(current, clusters, users, contexts)


def _entry(entries: Mapping[str, V], name: str, what: str) -> V:
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise NoKubeconfig(f"the kubeconfig has no {what} {name!r}; it has: {known}")
    return entries[name]


def _credentials(
    user: User, home: Path, clock: Clock, environ: Mapping[str, str], info: dict[str, object]
) -> Credentials:
    if user.exec:
        return credentials.Exec(_plugin(user.exec, home, environ, info), clock)
    if user.token_file and not user.token:
        return credentials.TokenFile(home / user.token_file, clock)
    authorization = Secret("")
    if user.token:
        authorization = credentials.token(user.token).authorization
    elif user.username:
        authorization = credentials.basic(user.username, user.password).authorization
    certificate = _inline_or_file(user.client_certificate_data, user.client_certificate, home)
    key = Secret(_inline_or_file(user.client_key_data, user.client_key, home))
    return Fixed(Identity(authorization, certificate, key))


def _plugin(
    spec: ExecSpec, home: Path, environ: Mapping[str, str], info: dict[str, object]
) -> credentials.Plugin:
    command = spec.command
    if "/" in command and not command.startswith("/"):
        command = str(home / command)  # a bare name is looked up in PATH instead
    return credentials.Plugin(
        command=command,
        args=spec.args or (),
        api_version=spec.api_version,
        env={**environ, **{var.name: var.value for var in spec.env or ()}},
        install_hint=spec.install_hint,
        cluster_info=info if spec.provide_cluster_info else None,
    )


def _info(cluster: Cluster, ca: str) -> dict[str, Any]:
    info: dict[str, Any] = {"server": cluster.server}
    if ca:
        info["certificate-authority-data"] = base64.b64encode(ca.encode()).decode()
    if cluster.insecure_skip_tls_verify:
        info["insecure-skip-tls-verify"] = True
    return info


def _inline_or_file(data: str, file: str, home: Path) -> str:
    if data:
        try:
            return base64.b64decode(data, validate=False).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise BadKubeconfig("certificate data in the kubeconfig is not base64") from error
    if not file:
        return ""
    try:
        return (home / file).read_text()
    except OSError as error:
        raise BadKubeconfig(f"cannot read {home / file}: {error.strerror}") from error
