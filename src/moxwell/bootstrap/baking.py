"""
The user data of a builder guest: it installs the node software, seals itself and reports. Pure.

The script starts at every boot until the guest is sealed, so an interrupted builder continues when
it is started again. It waits for the end of cloud-init, whose state it removes. The result is a
file that the guest agent reads; it is in ``/run``, so a new boot does not see that of an earlier
one.
"""

import hashlib
import ipaddress
from dataclasses import dataclass

import yaml

from moxwell.bootstrap.netplan import as_network_config
from moxwell.bootstrap.network import GuestNetwork, InterfaceAddress, Nic
from moxwell.bootstrap.node_software import NodeSoftware, install_script
from moxwell.errors import Invalid

RESULT = "/run/moxwell-bake"  # "sealed", or "failed:" and the end of the log
SEALED, FAILED = "sealed", "failed:"
LOG, FOLDER = "/var/log/moxwell-bake.log", "/usr/local/lib/moxwell-bake"
PER_BOOT = "/var/lib/cloud/scripts/per-boot/moxwell-bake"
START = f"#!/bin/sh\nexec systemd-run --no-block --unit=moxwell-bake sh {FOLDER}/bake\n"
BAKE = f"""#!/bin/sh
# Install the node software, then remove what must differ between clones.
seal() {{
  set -e
  systemctl stop kubelet containerd
  apt-get clean
  cloud-init clean --logs
  rm -rf /etc/ssh/ssh_host_* /etc/netplan/50-cloud-init.yaml {FOLDER}
  rm -f /etc/network/interfaces.d/50-cloud-init /var/lib/dbus/machine-id
  : > /etc/machine-id
  sync
}}
cloud-init status --wait > {LOG} 2>&1
if sh {FOLDER}/install >> {LOG} 2>&1 && (seal) >> {LOG} 2>&1; then
  rm -f {LOG}
  echo {SEALED} > {RESULT}
else
  systemctl start qemu-guest-agent || true
  tail -n 20 {LOG} > /dev/console || true
  {{ echo {FAILED}; tail -n 3 {LOG}; }} > {RESULT}
fi
"""


class InvalidBuilderAddress(Invalid):
    """The address of a builder guest is not valid."""

    reason = "InvalidBuilderAddress"


@dataclass(frozen=True, slots=True)
class BuilderNetwork:
    """The address of a builder guest; without one it uses DHCP."""

    address: str = ""  # 192.0.2.10/24
    gateway: str = ""
    nameservers: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse what is no address."""
        try:
            if self.address:
                ipaddress.ip_interface(self.address)
            for text in (self.gateway, *self.nameservers):
                if text:
                    ipaddress.ip_address(text)
        except ValueError as error:
            raise InvalidBuilderAddress(f"the builder's network: {error}") from error
        if self.address and "/" not in self.address:
            raise InvalidBuilderAddress(f"write the builder's address as {self.address}/24")

    def nic(self, mac: str) -> Nic:
        """The first network device of the builder."""
        if not self.address:
            return Nic("net0", mac, dhcp4=True, dns=self.nameservers)
        given = ipaddress.ip_interface(self.address)
        address = InterfaceAddress(str(given.ip), given.network.prefixlen, self.gateway)
        return Nic("net0", mac, (address,), dns=self.nameservers)


DHCP = BuilderNetwork()


def user_data(software: NodeSoftware) -> str:
    """The cloud-config of a builder."""
    contents = {
        PER_BOOT: START,
        f"{FOLDER}/bake": BAKE,
        f"{FOLDER}/install": install_script(software),
    }
    files = [
        {"path": path, "permissions": "0700", "content": text} for path, text in contents.items()
    ]
    return f"#cloud-config\n{yaml.safe_dump({'write_files': files}, sort_keys=False)}"


def builder_files(software: NodeSoftware, network: BuilderNetwork, mac: str) -> dict[str, bytes]:
    """The files of the builder's bootstrap ISO."""
    text = user_data(software).encode()
    instance = f"moxwell-bake-{hashlib.sha256(text).hexdigest()[:12]}"
    meta = {"instance-id": instance, "local-hostname": "moxwell-bake"}
    return {
        "user-data": text,
        "meta-data": yaml.safe_dump(meta).encode(),
        "network-config": as_network_config(GuestNetwork((network.nic(mac),))),
    }


def failure_in(result: str) -> str | None:
    """The end of the log of a builder that failed; None if it did not."""
    return result.removeprefix(FAILED).strip() if result.startswith(FAILED) else None
