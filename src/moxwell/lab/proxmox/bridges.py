"""The bridges of a node, and the MTU that they allow."""

from moxwell.lab.proxmox.config_schema.property_strings import Values
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall

BRIDGE_MTU = 1500
_LEAST_MTU, _SAME_MTU = 576, 1
_HINT = (
    " - adjust the MTU for the network device in the VM configuration, while ensuring that the"
    " bridge is configured as desired."
)


def has_bridge(call: PveCall, name: str) -> bool:
    """Whether this bridge or VNet is up on the node."""
    vnets = call.region.sdn.running.get("vnets", {})
    return bool(call.host.bridges.get(name, {}).get("active")) or name in vnets


def check_mtu(call: PveCall, name: str, net: Values) -> None:
    """The MTU of a VirtIO device on a bridge: not below that of IP, not above the bridge's."""
    mtu = int(net.get("mtu") or _SAME_MTU)
    if net.get("model") != "virtio" or not net.get("bridge") or mtu == _SAME_MTU:
        return
    if mtu < _LEAST_MTU:
        text = f"MTU '{mtu}' is smaller than the IP minimum MTU '{_LEAST_MTU}'"
        raise die(f"netdev {name}: {text}")
    if mtu > BRIDGE_MTU:
        text = f"netdev {name}: MTU '{mtu}' is bigger than the bridge MTU '{BRIDGE_MTU}'"
        raise die(text + (_HINT if call.major >= 9 else ""))
