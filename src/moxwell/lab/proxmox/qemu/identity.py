"""Generated and checked guest properties: UUIDs, MAC addresses, tags, SSH keys, passwords."""

import base64
import binascii
import hashlib
import re
import struct
import uuid

from moxwell.lab.proxmox import datacenter_options
from moxwell.lab.proxmox.config_schema import devices, formats
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall, RegionRuntime
from moxwell.lab.proxmox.state import Conf

_KEY = re.compile(r"(ssh-[\w-]+(?:@openssh\.com)?|ecdsa-[\w-]+|sk-[\w@.-]+)\s+([A-Za-z0-9+/=]+)")
QEMU_VERSIONS = {8: "9.2.0", 9: "10.1.2"}


def new_uuid(runtime: RegionRuntime) -> str:
    return str(uuid.UUID(int=runtime.random.getrandbits(128), version=4))


def new_mac(call: PveCall) -> str:
    """A random MAC address with the datacenter's prefix."""
    prefix = str(call.region.options.get("mac_prefix") or "BC:24:11").upper().split(":")
    rest = [f"{call.runtime.random.randrange(256):02X}" for _ in range(6 - len(prefix))]
    return ":".join(prefix + rest)


def with_mac(call: PveCall, text: str, *, fresh: bool = False) -> str:
    """A network device string with a MAC address, in normalized form."""
    values = devices.read(devices.NET, text)
    if fresh or "macaddr" not in values:
        values["macaddr"] = new_mac(call)
    return devices.write_net(values)


def meta(runtime: RegionRuntime) -> str:
    version = QEMU_VERSIONS.get(runtime.region.major, QEMU_VERSIONS[9])
    return f"creation-qemu={version},ctime={int(runtime.now())}"


def normalize_tags(call: PveCall, text: str) -> str:
    """Tags as PVE stores them: unique, lower case and sorted unless configured otherwise."""
    style = datacenter_options.option(call.region, "tag-style") or {}
    tags = formats.split_list(text)
    if not style.get("case-sensitive"):
        tags = [tag.lower() for tag in tags]
    if style.get("ordering") != "config":
        tags.sort()
    return ";".join(dict.fromkeys(tags))


def check_ssh_keys(text: str) -> None:
    """Check public keys as ssh-keygen does."""
    if not any(_is_key(line) for line in text.splitlines()):
        raise die("SSH public key validation error")


def _is_key(line: str) -> bool:
    match = _KEY.search(line)
    if match is None:
        return False
    try:
        blob = base64.b64decode(match[2], validate=True)
        (length,) = struct.unpack_from(">I", blob)
    except (binascii.Error, struct.error):
        return False
    return blob[4 : 4 + length].decode("ascii", "replace") == match[1] and len(blob) > 4 + length


def hashed_password(conf: Conf, password: str) -> str:
    """Hash a cloud-init password, unless the OS type is Windows."""
    if str(conf.get("ostype", "")).startswith("w") or re.match(
        r"\$(?:[156]|2[ay])(\$.+){2}", password
    ):
        return password
    salt = hashlib.sha256(password.encode()).hexdigest()[:8]
    digest = base64.b64encode(hashlib.sha256((salt + password).encode()).digest()).decode()
    return f"$5${salt}${digest.rstrip('=').replace('+', '.')}"
