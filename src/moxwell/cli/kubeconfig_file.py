"""
Adds a cluster to the user's kubeconfig file and removes it again, as ``kind`` does.

The file is the first of ``KUBECONFIG``, else ``~/.kube/config``. Entries of other clusters stay as
they are; comments are lost, as with kubectl. Locks the file as client-go does.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from moxwell.atomic_file import write_private
from moxwell.errors import Busy, Invalid

Json = dict[str, Any]
_LISTS = {"clusters": "cluster", "users": "user", "contexts": "context"}


class KubeconfigLocked(Busy):
    """Another program writes the file."""

    reason = "KubeconfigLocked"


def default_path(environ: Mapping[str, str]) -> Path:
    """The file that kubectl writes to."""
    first = environ.get("KUBECONFIG", "").partition(os.pathsep)[0]
    return Path(first) if first else Path(environ.get("HOME", "~")).expanduser() / ".kube/config"


def context_name(instance: str, cluster: str, namespace: str) -> str:
    """The name of the context of a tenant cluster: ``moxwell-demo``."""
    parts = ["moxwell"] + ([instance] if instance != "lab" else [])
    parts += [namespace] if namespace != f"tenant-{cluster}" else []
    return "-".join([*parts, cluster])


def merged(file: Json, added: Json, context: str) -> Json:
    """A kubeconfig with the one context of another under a name; it becomes the current one."""
    single = {key: added[key][0][inner] for key, inner in _LISTS.items()}
    single["contexts"] = {**single["contexts"], "cluster": context, "user": context}
    rest = removed(file, context)
    head = {"apiVersion": "v1", "kind": "Config", "preferences": {}}
    lists = {
        key: [*(rest.get(key) or ()), {"name": context, inner: single[key]}]
        for key, inner in _LISTS.items()
    }
    return {**head, **rest, **lists, "current-context": context}


def removed(file: Json, context: str) -> Json:
    """A kubeconfig without the entries of a name."""
    lists = {
        key: [entry for entry in file.get(key) or () if entry.get("name") != context]
        for key in _LISTS
    }
    rest = {**file, **lists}
    if rest.get("current-context") == context:
        rest["current-context"] = ""
    return rest


def add(path: Path, kubeconfig: bytes, context: str) -> None:
    """Add a cluster to a file."""
    with _locked(path):
        _write(path, merged(_read(path), yaml.safe_load(kubeconfig), context))


def remove(path: Path, context: str) -> bool:
    """Remove a cluster from a file; returns whether it was there."""
    if not path.exists():
        return False
    with _locked(path):
        before = _read(path)
        after = removed(before, context)
        if all(len(after[key]) == len(before.get(key) or ()) for key in _LISTS):
            return False
        _write(path, after)
    return True


def _read(path: Path) -> Json:
    """The content of the file; Invalid without its text, which may hold secrets."""
    if not path.exists():
        return {}
    try:
        found = yaml.safe_load(path.read_text()) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not YAML; it is unchanged") from error
    if not isinstance(found, dict):
        raise Invalid(f"{path} is not a kubeconfig; it is unchanged")
    return found


def _write(path: Path, content: Json) -> None:
    target = path.resolve()  # a symbolic link stays one
    write_private(target, yaml.safe_dump(content, sort_keys=False).encode())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = path.with_name(path.name + ".lock")
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError as error:
        raise KubeconfigLocked(
            f"{lock} exists: another program writes {path.name}; retry, or delete the lock file"
        ) from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
