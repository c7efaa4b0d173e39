"""
The script that installs containerd, kubelet and kubeadm on Debian and Ubuntu. Pure.

It runs at the first boot of a node or while a template is built, and may run again. Each download
has a setting for a mirror. The settings are a line in the description of the template, so that the
controller of machines finds them; they contain no secrets.
"""

import re
import shlex
from collections.abc import Mapping

import msgspec

from moxwell.errors import Invalid

PACKAGES = "https://pkgs.k8s.io/core:/stable:/v{minor}/deb/"
_LINE = re.compile(r"^\s*moxwell-node-software=(\{.*\})\s*$", re.MULTILINE)
_URL = re.compile(r"https?://[^\s'\"\\<>]+")
_VERSION = re.compile(r"v?(\d+\.\d+)\.\d+")
_REGISTRY = re.compile(r"[a-z0-9.-]+(:\d+)?")
_IMAGE = re.compile(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._/-]+)?")


class InvalidNodeSoftware(Invalid):
    """A setting of the node software is not valid."""

    reason = "InvalidNodeSoftware"


class NodeSoftware(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node needs, and the mirrors that it is downloaded from."""

    kubernetes: str
    packages: str = ""  # apt repository of kubelet and kubeadm; empty: pkgs.k8s.io
    packages_key: str = ""  # empty: Release.key of the repository
    distribution_mirror: str = ""  # replaces scheme and host in the sources of the distribution
    image_repository: str = ""  # of the pause image
    registry_mirrors: Mapping[str, str] = msgspec.field(default_factory=dict)
    proxy: str = ""

    @property
    def repository(self) -> str:
        return self.packages or PACKAGES.format(minor=_minor(self.kubernetes))

    def check(self) -> None:
        """Refuse values that are not URLs, registries or versions."""
        _minor(self.kubernetes)
        urls = {
            "packages": self.packages,
            "packages key": self.packages_key,
            "distribution mirror": self.distribution_mirror,
            "proxy": self.proxy,
        } | {f"mirror of {name}": url for name, url in self.registry_mirrors.items()}
        for what, url in urls.items():
            if url and not _URL.fullmatch(url):
                raise InvalidNodeSoftware(f"{what}: {url!r} is not a URL with http or https")
        for name in self.registry_mirrors:
            if not _REGISTRY.fullmatch(name):
                raise InvalidNodeSoftware(f"{name!r} is not a registry such as docker.io")
        if self.image_repository and not _IMAGE.fullmatch(self.image_repository):
            raise InvalidNodeSoftware(f"{self.image_repository!r} is not an image repository")


def _minor(version: str) -> str:
    found = _VERSION.fullmatch(version)
    if found is None:
        raise InvalidNodeSoftware(f"{version!r} is not a Kubernetes version such as v1.34.1")
    return found[1]


def description_line(software: NodeSoftware) -> str:
    """The line that keeps the settings in the description of a template."""
    return f"moxwell-node-software={msgspec.json.encode(software).decode()}"


def software_in(description: str) -> NodeSoftware | None:
    """The settings in a description; None without a line, InvalidNodeSoftware if it is wrong."""
    found = _LINE.search(description)
    if found is None:
        return None
    try:
        software = msgspec.json.decode(found[1], type=NodeSoftware)
    except msgspec.MsgspecError as error:
        raise InvalidNodeSoftware(
            f"the node software in the template's description cannot be read: {error}"
        ) from error
    software.check()
    return software


def install_script(software: NodeSoftware) -> str:
    """The script; it stops at the first error, and each download is tried five times."""
    software.check()
    version = software.kubernetes.removeprefix("v")
    return "\n".join(
        [
            *_head(version),
            *_mirrors(software),
            *_kernel(),
            *_packages(software, version),
            *_containerd(software),
            "systemctl enable --now containerd",
            "systemctl enable kubelet",
            "systemctl start qemu-guest-agent || true",
            "",
        ]
    )


def _head(version: str) -> list[str]:
    return [
        "#!/bin/sh",
        "set -eu",
        "export DEBIAN_FRONTEND=noninteractive",
        f"if [ \"$(kubelet --version 2>/dev/null)\" = 'Kubernetes v{version}' ] "
        "&& command -v kubeadm containerd >/dev/null; then exit 0; fi",
        'retry() { n=0; until "$@"; do n=$((n+1)); [ $n -lt 5 ] || return 1; sleep $((n*5)); '
        "done; }",
    ]


def _mirrors(software: NodeSoftware) -> list[str]:
    lines = []
    if software.proxy:
        proxy = software.proxy
        apt = f'Acquire::http::Proxy "{proxy}";\nAcquire::https::Proxy "{proxy}";'
        unit = f'[Service]\nEnvironment="HTTP_PROXY={proxy}" "HTTPS_PROXY={proxy}"'
        lines += [
            f"export http_proxy={shlex.quote(proxy)} https_proxy={shlex.quote(proxy)}",
            _write("/etc/apt/apt.conf.d/95proxy", apt),
            _write("/etc/systemd/system/containerd.service.d/proxy.conf", unit),
            "systemctl daemon-reload",
        ]
    if software.distribution_mirror:
        mirror = software.distribution_mirror.rstrip("/")
        hosts = r"([a-z0-9.-]+\.)?(archive|security|ports)\.ubuntu\.com|(deb|security)\.debian\.org"
        edit = f"s#https?://({hosts})/#{mirror}/#"
        lines.append(
            "find /etc/apt -name '*.list' -o -name '*.sources' | "
            f"xargs -r sed -i -E {shlex.quote(edit)}"
        )
    return lines


def _kernel() -> list[str]:
    settings = (
        "net.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = 1\n"
        "net.bridge.bridge-nf-call-ip6tables = 1"
    )
    return [
        _write("/etc/modules-load.d/kubernetes.conf", "overlay\nbr_netfilter"),
        _write("/etc/sysctl.d/99-kubernetes.conf", settings),
        "modprobe -a overlay br_netfilter",
        "sysctl --system >/dev/null",
        "swapoff -a",
        r"sed -i -E '/\sswap\s/d' /etc/fstab",
    ]


def _packages(software: NodeSoftware, version: str) -> list[str]:
    repository = software.repository.rstrip("/") + "/"
    key = software.packages_key or f"{repository}Release.key"
    keyring = "/etc/apt/keyrings/kubernetes.asc"
    source = f"deb [signed-by={keyring}] {repository} /"
    tools = "ca-certificates curl qemu-guest-agent containerd conntrack ethtool iptables socat"
    return [
        "retry apt-get update -q",
        f"retry apt-get install -q -y {tools}",
        "install -d -m 0755 /etc/apt/keyrings",
        f"retry curl -fsSL -o {keyring} {shlex.quote(key)}",
        _write("/etc/apt/sources.list.d/kubernetes.list", source),
        "retry apt-get update -q",
        f"retry apt-get install -q -y --allow-change-held-packages 'kubelet={version}-*' "
        f"'kubeadm={version}-*'",
        "apt-mark hold kubelet kubeadm >/dev/null",
    ]


def _containerd(software: NodeSoftware) -> list[str]:
    file = "/etc/containerd/config.toml"
    lines = [
        "install -d /etc/containerd/certs.d",
        f"containerd config default > {file}",
        f"sed -i -E 's/SystemdCgroup = false/SystemdCgroup = true/; "
        f's#config_path = .*#config_path = "/etc/containerd/certs.d"#\' {file}',
    ]
    if software.image_repository:
        edit = rf"s#(sandbox(_image)? = ['\"]).*/(pause:)#\1{software.image_repository}/\3#"
        lines.append(f"sed -i -E {shlex.quote(edit)} {file}")
    for registry, mirror in sorted(software.registry_mirrors.items()):
        origin = "registry-1.docker.io" if registry == "docker.io" else registry
        hosts = (
            f'server = "https://{origin}"\n\n[host."{mirror}"]\n'
            '  capabilities = ["pull", "resolve"]'
        )
        lines.append(_write(f"/etc/containerd/certs.d/{registry}/hosts.toml", hosts))
    return [*lines, "systemctl restart containerd"]


def _write(path: str, text: str) -> str:
    folder = path.rpartition("/")[0]
    return f"install -d {folder}\nprintf '%s\\n' {shlex.quote(text)} > {path}"
