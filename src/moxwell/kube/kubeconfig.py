"""
Kubeconfig files and the in-cluster configuration of a pod.

Several files are merged as kubectl merges them (the first that defines an entry wins); the result
is an ``ApiAccess`` for :mod:`moxwell.kube.transport`. Relative paths are relative to the file that
contains them. The environment is passed in, not read.
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

from moxwell import yaml_documents
from moxwell.clock import Clock
from moxwell.errors import Invalid, Missing
from moxwell.kube import credentials
from moxwell.kube.credentials import ApiCredentials, ApiIdentity, SecretText, StaticCredentials

POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")

OUTSIDE = ("exec", "tokenFile", "client-certificate", "client-key", "certificate-authority")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccess:
    """Address, CA and credentials of an apiserver."""

    server: str
    credentials: ApiCredentials = field(default_factory=StaticCredentials)
    ca: str = ""
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    namespace: str = "default"


class BadKubeconfig(Invalid):
    """The kubeconfig is invalid."""

    reason = "InvalidKubeconfig"


class NoKubeconfig(Missing):
    """There is no kubeconfig, or it lacks the requested context."""

    reason = "KubeconfigMissing"


class _Strict(Struct, frozen=True, kw_only=True, rename="kebab"):
    pass


class KubeconfigCluster(_Strict, frozen=True, kw_only=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class ExecEnvVar(Struct, frozen=True, kw_only=True):
    name: str
    value: str = ""


class ExecSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    command: str
    args: tuple[str, ...] | None = ()
    env: tuple[ExecEnvVar, ...] | None = ()
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    provide_cluster_info: bool = False


class KubeconfigUser(_Strict, frozen=True, kw_only=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = named(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    exec: ExecSpec | None = None


class KubeconfigContext(_Strict, frozen=True, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(Struct, frozen=True, kw_only=True):
    name: str
    cluster: KubeconfigCluster | None = None


class NamedUser(Struct, frozen=True, kw_only=True):
    name: str
    user: KubeconfigUser | None = None


class NamedContext(Struct, frozen=True, kw_only=True):
    name: str
    context: KubeconfigContext | None = None


class KubeconfigFile(_Strict, frozen=True, kw_only=True):
    """One kubeconfig file."""

    current_context: str = ""
    clusters: tuple[NamedCluster, ...] | None = ()
    users: tuple[NamedUser, ...] | None = ()
    contexts: tuple[NamedContext, ...] | None = ()


V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """Several merged files; each entry keeps the directory of its file."""

    current: str
    clusters: Mapping[str, tuple[KubeconfigCluster, Path]] = field(repr=False)
    users: Mapping[str, tuple[KubeconfigUser, Path]] = field(repr=False)
    contexts: Mapping[str, KubeconfigContext]

    def access(self, clock: Clock, environ: Mapping[str, str], context: str = "") -> ApiAccess:
        """The access of a context, by default the current one."""
        name = context or self.current
        if not name:
            raise NoKubeconfig("the kubeconfig has no current context: name one")
        chosen = _entry(self.contexts, name, "context")
        cluster, at = _entry(self.clusters, chosen.cluster, "cluster")
        user, home = self.users.get(chosen.user, (KubeconfigUser(), Path()))
        if chosen.user and chosen.user not in self.users:
            _entry(self.users, chosen.user, "user")
        if not cluster.server:
            raise BadKubeconfig(f"the cluster {chosen.cluster!r} in the kubeconfig has no server")
        ca = _inline_or_file(cluster.certificate_authority_data, cluster.certificate_authority, at)
        return ApiAccess(
            server=cluster.server.rstrip("/"),
            credentials=_credentials(user, home, clock, environ, _info(cluster, ca)),
            ca=ca,
            insecure=cluster.insecure_skip_tls_verify,
            server_name=cluster.tls_server_name,
            proxy=cluster.proxy_url,
            namespace=chosen.namespace or "default",
        )


def load(paths: Sequence[Path]) -> Kubeconfig:
    """Read and merge files; missing ones are skipped as by kubectl, unless all are missing."""
    present = [path for path in paths if path.exists()]
    if not present:
        raise NoKubeconfig(f"no kubeconfig at {', '.join(map(str, paths)) or 'no path'}")
    return _merged([(_read(path), path.resolve().parent) for path in present])


def parse(text: str | bytes) -> Kubeconfig:
    """
    A kubeconfig from memory, for example from a Secret: all of its credentials are inline.

    Whoever may write a Secret must neither run a program here nor read a file of this machine.
    """
    config = _config(text, "the kubeconfig")
    _refuse_files_and_programs(config)
    return _merged([(config, Path())])


def in_cluster(clock: Clock, environ: Mapping[str, str], folder: Path = POD) -> ApiAccess:
    """The in-cluster access of a pod."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not (folder / "token").exists():
        raise NoKubeconfig("this is not a pod: no service host or no token file")
    shown = f"[{host}]" if ":" in host else host
    space = folder / "namespace"
    return ApiAccess(
        server=f"https://{shown}:{port or 443}",
        credentials=credentials.TokenFile(folder / "token", clock),
        ca=(folder / "ca.crt").read_text(),
        namespace=space.read_text().strip() if space.exists() else "default",
    )


def find(clock: Clock, environ: Mapping[str, str], path: str = "", context: str = "") -> ApiAccess:
    """kubectl's order: the given path, KUBECONFIG, ~/.kube/config, in-cluster."""
    listed = path or environ.get("KUBECONFIG", "")
    if listed:
        places = [Path(part) for part in listed.split(":" if not path else "\0") if part]
        return load(places).access(clock, environ, context)
    default = Path(environ.get("HOME", "/")) / ".kube" / "config"
    if default.exists() or "KUBERNETES_SERVICE_HOST" not in environ:
        return load([default]).access(clock, environ, context)
    return in_cluster(clock, environ)


def _read(path: Path) -> KubeconfigFile:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadKubeconfig(f"cannot read {path}: {error.strerror}") from error
    return _config(text, str(path))


def _config(text: str | bytes, what: str) -> KubeconfigFile:
    try:
        return msgspec.convert(yaml_documents.load(text) or {}, KubeconfigFile)
    except yaml.YAMLError as error:
        raise BadKubeconfig(f"{what} is not YAML{yaml_documents.line_of(error)}") from None
    except msgspec.ValidationError as error:
        raise BadKubeconfig(f"{what} is not a kubeconfig: {error}") from error


def _refuse_files_and_programs(config: KubeconfigFile) -> None:
    users = [(f"user {each.name!r}", _outside(each.user)) for each in config.users or ()]
    clusters = [(f"cluster {c.name!r}", _outside(c.cluster)) for c in config.clusters or ()]
    for where, names in (*users, *clusters):
        if names:
            raise BadKubeconfig(
                f"the {where} of the kubeconfig has {names[0]}: a kubeconfig in a Secret has its "
                "certificates, keys and tokens inline"
            )


def _outside(entry: KubeconfigUser | KubeconfigCluster | None) -> list[str]:
    """The fields of an entry that run a program or read a file."""
    given = msgspec.to_builtins(entry, str_keys=True) if entry is not None else {}
    return sorted(name for name in OUTSIDE if given.get(name))


def _merged(files: Sequence[tuple[KubeconfigFile, Path]]) -> Kubeconfig:
    clusters: dict[str, tuple[KubeconfigCluster, Path]] = {}
    users: dict[str, tuple[KubeconfigUser, Path]] = {}
    contexts: dict[str, KubeconfigContext] = {}
    for config, home in files:
        for c in config.clusters or ():
            clusters.setdefault(c.name, (c.cluster or KubeconfigCluster(), home))
        for u in config.users or ():
            users.setdefault(u.name, (u.user or KubeconfigUser(), home))
        for x in config.contexts or ():
            contexts.setdefault(x.name, x.context or KubeconfigContext())
    current = next((c.current_context for c, _ in files if c.current_context), "")
    return Kubeconfig(current, clusters, users, contexts)


def _entry(entries: Mapping[str, V], name: str, what: str) -> V:
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise NoKubeconfig(f"the kubeconfig has no {what} {name!r}; it has: {known}")
    return entries[name]


def _credentials(
    user: KubeconfigUser,
    home: Path,
    clock: Clock,
    environ: Mapping[str, str],
    info: dict[str, object],
) -> ApiCredentials:
    if user.exec:
        return credentials.ExecCredentials(_plugin(user.exec, home, environ, info), clock)
    if user.token_file and not user.token:
        return credentials.TokenFile(home / user.token_file, clock)
    authorization = SecretText("")
    if user.token:
        authorization = credentials.token(user.token).authorization
    elif user.username:
        authorization = credentials.basic(user.username, user.password).authorization
    certificate = _inline_or_file(user.client_certificate_data, user.client_certificate, home)
    key = SecretText(_inline_or_file(user.client_key_data, user.client_key, home))
    return StaticCredentials(ApiIdentity(authorization, certificate, key))


def _plugin(
    spec: ExecSpec, home: Path, environ: Mapping[str, str], info: dict[str, object]
) -> credentials.ExecPlugin:
    command = spec.command
    if "/" in command and not command.startswith("/"):
        command = str(home / command)  # a bare name is searched in PATH
    return credentials.ExecPlugin(
        command=command,
        args=spec.args or (),
        api_version=spec.api_version,
        env={**environ, **{var.name: var.value for var in spec.env or ()}},
        install_hint=spec.install_hint,
        cluster_info=info if spec.provide_cluster_info else None,
    )


def _info(cluster: KubeconfigCluster, ca: str) -> dict[str, Any]:
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
