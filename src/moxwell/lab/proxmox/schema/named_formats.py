"""The formats that the API schema refers to by name; ``-list`` and ``-opt`` variants included."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from moxwell.lab.proxmox.config_schema import devices, drives, formats
from moxwell.lab.proxmox.config_schema.property_strings import PropertyFormat, parse
from moxwell.lab.proxmox.firewall import formats as firewall
from moxwell.lab.proxmox.route import Checker, Param, PathChecker
from moxwell.lab.proxmox.schema import area_formats as area
from moxwell.lab.proxmox.schema import calendar_event

CHECKS: Mapping[str, Checker] = MappingProxyType(
    {
        "CIDR": formats.cidr,
        "CIDRv4": area.cidr_v4,
        "CIDRv6": area.cidr_v6,
        "IPorCIDR": firewall.ip_or_cidr,
        "IPorCIDRorAlias": firewall.ip_or_cidr_or_alias,
        "address": formats.address,
        "bridge-pair": area.bridge_pair,
        "disk-size": formats.disk_size,
        "dns-name": formats.dns_name,
        "email": formats.email,
        "email-or-username": area.email_or_user,
        "graphite-path": area.graphite_path,
        "ip": formats.ip,
        "ipv4": formats.ipv4,
        "ipv4mask": area.ipv4_mask,
        "ipv6": formats.ipv6,
        "ldap-simple-attr": area.ldap_attribute,
        "lxc-ip-with-ll-iface": formats.container_address,
        "mac-addr": formats.mac,
        "mac-prefix": area.mac_prefix,
        "pem-certificate": area.pem("CERTIFICATE"),
        "pem-certificate-chain": area.pem("CERTIFICATE", multiple=True),
        "pem-string": area.pem("[^\\n-]+"),
        "pve-acme-alias": area.acme_alias,
        "pve-acme-domain": area.acme_domain,
        "pve-bridge-id": formats.bridge_id,
        "pve-calendar-event": calendar_event.check,
        "pve-command-batch": area.command_batch,
        "pve-configid": formats.config_id,
        "pve-cpuset": formats.cpuset,
        "pve-ct-timezone": formats.timezone,
        "pve-day-of-week": area.day_of_week,
        "pve-dir-override": area.dir_override,
        "pve-fw-addr-spec": firewall.address_spec,
        "pve-fw-conntrack-helper": area.conntrack_helper,
        "pve-fw-dport-spec": firewall.dport_spec,
        "pve-fw-icmp-type-spec": firewall.icmp_type_spec,
        "pve-fw-protocol-spec": firewall.protocol_spec,
        "pve-fw-sport-spec": firewall.port_spec,
        "pve-groupid": formats.group_id,
        "pve-ha-group-node": area.ha_node,
        "pve-ha-node": area.ha_node,
        "pve-ha-resource-id": area.ha_resource_id,
        "pve-ha-resource-or-vm-id": area.ha_resource_or_vmid,
        "pve-hotplug-features": formats.hotplug_features,
        "pve-iface": area.iface,
        "pve-ipv4-config": formats.ipv4_config,
        "pve-ipv6-config": formats.ipv6_config,
        "pve-lxc-dev-string": formats.device_path,
        "pve-lxc-mp-string": formats.container_mount,
        "pve-node": formats.node,
        "pve-poolid": formats.pool_id,
        "pve-qm-bootdisk": area.boot_disk,
        "pve-realm": formats.realm,
        "pve-replication-job-id": area.replication_job,
        "pve-roleid": formats.role_id,
        "pve-sdn-bgp-rt": area.route_target,
        "pve-sdn-controller-id": area.controller_id,
        "pve-sdn-dns-id": area.dns_id,
        "pve-sdn-fabric-id": area.fabric_id,
        "pve-sdn-ipam-id": area.ipam_id,
        "pve-sdn-isis-net": area.isis_net,
        "pve-sdn-subnet-id": area.subnet_id,
        "pve-sdn-vnet-id": area.vnet_id,
        "pve-sdn-zone-id": area.zone_id,
        "pve-startup-order": formats.startup_order,
        "pve-storage-content": formats.storage_content,
        "pve-storage-id": formats.storage_id,
        "pve-storage-options": area.mount_options,
        "pve-storage-path": formats.absolute_path,
        "pve-storage-path-in-property-string": area.path_in_property_string,
        "pve-storage-portal-dns": area.storage_portal,
        "pve-storage-server": area.storage_server,
        "pve-storage-vgname": area.volume_group,
        "pve-tag": formats.tag,
        "pve-task-status-type": area.task_status,
        "pve-tokenid": area.full_token_id,
        "pve-userid": formats.user_id,
        "pve-vlan-id-or-range": area.vlan_range,
        "pve-vmid": formats.vmid,
        "pve-volume-id": formats.volume_id,
        "pve-volume-id-or-absolute-path": formats.volume_or_absolute,
        "pve-volume-id-or-qm-path": formats.volume_or_path,
        "storage-pair": area.storage_pair,
        "string": str,
        "urlencoded": formats.urlencoded,
    }
)


def find_check(name: str) -> Checker | None:
    """The check of a named format; None if the format is not checked."""
    if name in CHECKS:
        return CHECKS[name]
    base, _, kind = name.rpartition("-")
    if base not in CHECKS:
        return None
    if kind == "list":
        return formats.listed(CHECKS[base])
    return _optional(CHECKS[base]) if kind == "opt" else None


def _optional(check: Checker) -> Checker:
    def check_unless_empty(value: str) -> object:
        return check(value) if value else None

    return check_unless_empty


def _fixed(schema: PropertyFormat) -> PathChecker:
    def check(text: str, path: str, major: int) -> object:
        return parse(schema, text, path, major=major)

    return check


def _per_major(choose: Callable[[int], PropertyFormat]) -> PathChecker:
    def check(text: str, path: str, major: int) -> object:
        return parse(choose(major), text, path, major=major)

    return check


_KEEP = Param(type="integer", minimum=0)
PRUNE = PropertyFormat(
    {
        "keep-all": Param(type="boolean"),
        **{f"keep-{unit}": _KEEP for unit in formats.words("last hourly daily weekly monthly")},
        "keep-yearly": _KEEP,
    },
    after=area.keep_all_alone,
)
PROPERTY_STRINGS: Mapping[str, PathChecker] = MappingProxyType(
    {
        "backup-fleecing": _fixed(
            PropertyFormat(
                {
                    "enabled": Param(type="boolean", default_key=True),
                    "storage": Param(format=formats.storage_id),
                }
            )
        ),
        "backup-performance": _fixed(
            PropertyFormat(
                {
                    "max-workers": Param(type="integer", minimum=1, maximum=256),
                    "pbs-entries-max": Param(type="integer", minimum=1),
                }
            )
        ),
        "prune-backups": _fixed(PRUNE),
        "pve-priv-list": area.privileges,
        "proxmox-remote": _fixed(
            PropertyFormat(
                {
                    "host": Param(optional=False, format=formats.address),
                    "port": Param(type="integer"),
                    "apitoken": Param(optional=False),
                    "fingerprint": Param(pattern="([A-Fa-f0-9]{2}:){31}[A-Fa-f0-9]{2}"),
                }
            )
        ),
        "pve-qemu-sev-fmt": _fixed(devices.SEV),
        "pve-qemu-tdx-fmt": _fixed(devices.TDX),
        "pve-qm-boot": _fixed(devices.BOOT),
        "pve-qm-cicustom": _fixed(devices.CICUSTOM),
        "pve-qm-hostpci": _fixed(devices.HOSTPCI),
        "pve-qm-ide": _fixed(drives.FORMS["ide"]),
        "pve-qm-ipconfig": _fixed(devices.IPCONFIG),
        "pve-qm-rng": _fixed(devices.RNG),
        "pve-qm-smbios1": _fixed(devices.SMBIOS),
        "pve-qm-watchdog": _fixed(devices.WATCHDOG),
        "pve-sdn-dhcp-range": _fixed(
            PropertyFormat(
                {
                    "start-address": Param(optional=False, format=formats.ip),
                    "end-address": Param(optional=False, format=formats.ip),
                }
            )
        ),
        "pve-tfa-config": _fixed(
            PropertyFormat(
                {
                    "type": Param(optional=False, enum=("yubico", "oath")),
                    **dict.fromkeys(("id", "key", "url"), Param()),
                    "digits": Param(type="integer", minimum=6, maximum=8),
                    "step": Param(type="integer", minimum=10),
                }
            )
        ),
        "pve-vm-cpu-conf": _per_major(lambda major: devices.CPU[min(max(major, 8), 9)]),
        "realm-sync-options": _fixed(
            PropertyFormat(
                {
                    "scope": Param(enum=("users", "groups", "both")),
                    "remove-vanished": Param(
                        pattern="(?:(?:(?:acl|properties|entry);)*(?:acl|properties|entry))|none"
                    ),
                    "enable-new": Param(type="boolean"),
                    "full": Param(type="boolean"),
                    "purge": Param(type="boolean"),
                }
            )
        ),
    }
)
