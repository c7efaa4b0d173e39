"""
Local repositories for genuine clusterctl: our release, and the genuine providers of the envtest.

It consists of ``clusterctl.yaml`` and one directory per provider and version. The directory of our
provider has the files of ``release/``; those of Cluster API have its CRDs only, because their
managers run as processes. clusterctl requires cert-manager, which none of these needs; two small
CRDs replace it.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import moxwell
from envtest import locate, managers
from envtest.managers import Manager
from envtest.table import BY_NAME
from support.operator_process import RELEASE, components

Json = dict[str, Any]
CERT_MANAGER = "v1.20.2"
VERSION = f"v{moxwell.__version__}"
CONTRACT = "v1beta2"


@dataclass(frozen=True)
class Provider:
    """A provider of Cluster API, by the words clusterctl has for it."""

    folder: str
    name: str
    type: str
    manager: Manager

    @property
    def version(self) -> str:
        return BY_NAME[self.manager.name].version


PROVIDERS = (
    Provider("cluster-api", "cluster-api", "CoreProvider", managers.CORE),
    Provider("bootstrap-kubeadm", "kubeadm", "BootstrapProvider", managers.BOOTSTRAP),
    Provider("control-plane-kubeadm", "kubeadm", "ControlPlaneProvider", managers.CONTROL_PLANE),
    Provider("ipam-in-cluster", "in-cluster", "IPAMProvider", managers.IPAM),
)


class Clusterctl:
    """The program with its configuration; nothing of it touches the network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._listed: list[Json] = []
        for provider in PROVIDERS:
            self._put(provider)
        self._release()
        self._write_config()

    def __call__(
        self, *args: str | Path, check: bool = True, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = [locate.program("clusterctl"), "--config", self.folder / "clusterctl.yaml", *args]
        full = {"HOME": str(self.folder), "PATH": os.environ["PATH"], **(env or {})}
        full |= {"CLUSTERCTL_DISABLE_VERSIONCHECK": "true"}
        words = [str(word) for word in command]
        done = subprocess.run(
            words, capture_output=True, text=True, env=full, timeout=300, check=False
        )
        if check:
            assert done.returncode == 0, f"{args}: {done.stderr[-3000:]}"
        return done

    def _put(self, provider: Provider) -> None:
        place = self._place(provider.folder, provider.version)
        space = {"apiVersion": "v1", "kind": "Namespace"}
        space["metadata"] = {"name": f"{provider.folder}-system"}  # type: ignore[assignment]
        found = [space, *(_labelled(d) for d in managers.definitions(provider.manager))]
        self._finish(place, provider.name, provider.type, provider.version, found)

    def _release(self) -> None:
        place = self._place("infrastructure-moxwell", VERSION)
        for path in RELEASE.glob("cluster-template*.yaml"):
            shutil.copy(path, place)
        found = components()
        self._finish(place, "moxwell", "InfrastructureProvider", VERSION, found)
        shutil.copy(RELEASE / "metadata.yaml", place)

    def _place(self, name: str, version: str) -> Path:
        place = self.folder / name / version
        place.mkdir(parents=True)
        return place

    def _finish(self, place: Path, name: str, kind: str, version: str, found: list[Json]) -> None:
        file = place / "components.yaml"
        file.write_text(yaml.dump_all(found, Dumper=managers.DUMPER, sort_keys=False, width=120))
        major, minor, _ = version.removeprefix("v").split(".")
        series = {"major": int(major), "minor": int(minor), "contract": CONTRACT}
        said = {"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata"}
        text = yaml.safe_dump({**said, "releaseSeries": [series]})
        (place / "metadata.yaml").write_text(text)
        self._listed.append({"name": name, "type": kind, "url": f"file://{file}"})

    def _write_config(self) -> None:
        place = self._place("cert-manager", CERT_MANAGER)
        file = place / "cert-manager.yaml"
        file.write_text(yaml.safe_dump_all(_cert_manager()))
        manager = {"url": f"file://{file}", "version": CERT_MANAGER}
        config = {"providers": self._listed, "cert-manager": manager}
        (self.folder / "clusterctl.yaml").write_text(yaml.safe_dump(config))


def _labelled(crd: Json) -> Json:
    labels = {**crd["metadata"].get("labels", {}), **dict(managers.CONTRACTS)}
    return {**crd, "metadata": {**crd["metadata"], "labels": labels}}


def _cert_manager() -> Iterator[Json]:
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cert-manager"}}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for kind in ("Certificate", "Issuer"):
        plural = f"{kind.lower()}s"
        version = {"name": "v1", "served": True, "storage": True}
        spec = {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        }
        meta = {"name": f"{plural}.cert-manager.io"}
        head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        yield {**head, "metadata": meta, "spec": spec}
