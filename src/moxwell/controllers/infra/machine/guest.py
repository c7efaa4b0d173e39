"""
Reads the guest of a machine from Proxmox: its owner, configuration, firewall groups and HA state.

The shared inventory answers most questions without a request. The configuration is read only while
the guest has no owner mark yet, and when it may have to be changed in place.
"""

from dataclasses import replace

from moxwell.api.capi.core import Machine
from moxwell.api.core.resources import Secret
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.template import Claim
from moxwell.api.infra.warm_guests import WARM_TAG, is_warm
from moxwell.bootstrap.bootstrap_data import BootstrapData
from moxwell.bootstrap.node_software import install_script, software_in
from moxwell.controllers.infra.guest_names import BOOTING, iso_storage_of, iso_volid, mark_of
from moxwell.controllers.infra.iso_cache import IsoCache
from moxwell.controllers.infra.machine.adoption import GuestAdoption
from moxwell.controllers.infra.machine.observed import HaMode, MachineGuest
from moxwell.controllers.infra.templates import TemplateCache, TemplateDetails
from moxwell.errors import Missing
from moxwell.kube.reader import Reader
from moxwell.pve import errors, firewall_groups, ownership
from moxwell.pve.endpoints.ha import HaResource, HaRule
from moxwell.pve.guests import CLONING
from moxwell.pve.model import ObservedGuest
from moxwell.pve.ownership import user_tags
from moxwell.pve.regions import Region
from moxwell.runtime.key import Key
from moxwell.scheduling.guest_hardware import hardware_hash
from moxwell.scheduling.inventory_model import GIB, MIB
from moxwell.scheduling.last_applied import recorded, removed_settings


class GuestReader:
    """Reads guests, their templates and their bootstrap ISOs."""

    def __init__(
        self, templates: TemplateCache, isos: IsoCache, adoption: GuestAdoption | None = None
    ) -> None:
        self._templates, self._isos = templates, isos
        self._adoption = adoption or GuestAdoption()

    async def find(
        self, obj: ProxmoxMachine, region: Region, *, read_config: bool = True
    ) -> MachineGuest | None:
        """
        The guest with the claimed VMID.

        Without ``read_config`` a guest whose tags do not contain the mark counts as cloning.
        """
        vmid, mark = obj.spec.virtual_machine_id, mark_of(obj)
        guest = region.inventory.find(vmid) if vmid is not None else None
        if guest is None:
            return None
        host = region.inventory.hosts.get(guest.host)
        online = bool(host and host.online)
        handed_over = WARM_TAG in guest.tags and not is_warm(obj)  # it is not configured yet
        if ownership.has_mark_tags(guest.tags, mark) and not guest.template and not handed_over:
            found = MachineGuest(guest, True, marked=True, host_online=online)
            if obj.spec.changes == "InPlace" and online and may_differ(obj, guest):
                return await self._read_all(obj, region, found)
            return found
        if not online or not read_config or guest.lock == CLONING or has_task(obj, region):
            return MachineGuest(guest, False, cloning=True, host_online=online)
        return await self._read_owner(obj, region, guest)

    async def _read_all(
        self, obj: ProxmoxMachine, region: Region, found: MachineGuest
    ) -> MachineGuest:
        """Read everything that may be changed in place."""
        guest = found.seen
        managed = obj.spec.high_availability is not None or guest.hastate
        groups = await self._firewall_groups(obj, region, guest)
        return replace(
            found,
            config=await region.reader.qemu.config(guest.host, guest.vmid),
            firewall_groups=groups,
            unknown_groups=await _unknown_groups(region, set(obj.spec.firewall_groups) - groups),
            ha=await _ha_resource(region, guest.vmid) if managed else None,
            ha_mode=await self.ha_mode(obj, region, started=True),
            previous_rule=await _previous_rule(obj, region),
        )

    async def _read_owner(
        self, obj: ProxmoxMachine, region: Region, guest: ObservedGuest
    ) -> MachineGuest:
        mark = mark_of(obj)
        try:
            config = await region.reader.qemu.config(guest.host, guest.vmid)
        except errors.GuestMissing:
            region.inventory.poll_frequently()  # deleted or migrated: poll soon
            return MachineGuest(guest, False, cloning=True)
        if config.lock == CLONING:
            return MachineGuest(guest, False, cloning=True, config=config)
        if not self._adoption.is_ours(obj, config) or config.template:
            return MachineGuest(guest, False, config=config)
        unbound = mark.key in guest.owner_keys and WARM_TAG not in guest.tags
        groups = await self._firewall_groups(obj, region, guest)
        return MachineGuest(
            guest, True, marked=unbound, unbound=unbound, config=config, firewall_groups=groups
        )

    async def _firewall_groups(
        self, obj: ProxmoxMachine, region: Region, guest: ObservedGuest
    ) -> frozenset[str]:
        if not obj.spec.firewall_groups and not recorded(obj.spec).firewall_groups:
            return frozenset()
        rules = await region.reader.firewall.rules(guest.host, guest.vmid)
        return firewall_groups.of_rules(rules)

    async def ha_mode(
        self, obj: ProxmoxMachine, region: Region, *, started: bool = False
    ) -> HaMode:
        """What ``highAvailability.group`` names; read before the first start or if ``started``."""
        care = obj.spec.high_availability
        if care is None or not care.group or (obj.spec.provider_id and not started):
            return "group"
        try:
            rule = await region.reader.ha.rule(care.group)
        except errors.NotSupported:
            return "group"
        except Missing:
            return "missing"
        return "member" if f"vm:{obj.spec.virtual_machine_id}" in rule.sids else "rule"

    async def template(self, region: Region, claim: Claim) -> TemplateDetails | None:
        """The template of the clone, while it exists."""
        guest = region.inventory.find(claim.template)
        return await self._templates.get(region, guest) if guest and guest.template else None

    async def iso_exists(self, obj: ProxmoxMachine, region: Region, claim: Claim) -> bool:
        """Whether the bootstrap ISO exists on its storage."""
        storage = iso_storage_of(region.name, claim)
        return await self._isos.exists(region, storage, iso_volid(obj, claim))


async def read_bootstrap(
    reader: Reader, machine: Machine, template: TemplateDetails | None = None
) -> BootstrapData | None:
    """
    The bootstrap data of a Machine; None while its Secret does not exist.

    The description of the template may say which software a node installs at first boot.
    """
    name = machine.spec.bootstrap.data_secret_name
    if name is None:
        return BootstrapData() if machine.spec.bootstrap.config_ref is None else None
    secret = await reader.find(Secret, name, machine.namespace)
    value = secret.read("value") if secret else None
    if secret is None or value is None:
        return None
    software = software_in(template.config.get("description", "")) if template else None
    data = BootstrapData(value.encode(), secret.read("format") or "cloud-config")
    if software is None:
        return data
    return replace(data, script=install_script(software).encode())


def may_differ(obj: ProxmoxMachine, guest: ObservedGuest) -> bool:
    """Whether the spec changed since it was applied, or the inventory shows other values."""
    spec, applied = obj.spec, recorded(obj.spec)
    if BOOTING not in guest.tags and applied.hardware_hash != hardware_hash(spec):
        return True  # includes settings that no inventory shows, such as the CPU type
    if removed_settings(applied, spec).disks:
        return True  # a kept disk, until somebody removes it
    cpus = (spec.num_cores or 0) * (spec.num_sockets or 1)
    boot = spec.disks.boot_volume if spec.disks else None
    return bool(
        (cpus and guest.cpus and cpus != guest.cpus)
        or (spec.memory_mib and guest.memory_bytes and spec.memory_mib * MIB != guest.memory_bytes)
        or not {t.lower() for t in user_tags(spec.tags)} <= {t.lower() for t in guest.tags}
        or (boot and guest.disk_bytes and boot.size_gb * GIB > guest.disk_bytes)
    )


def has_task(obj: ProxmoxMachine, region: Region) -> bool:
    """Whether a task of ours other than an upload runs for the machine."""
    running = region.tasks.of(Key(obj.namespace, obj.name))
    return any(upid.type != "imgcopy" for upid in running)


async def _ha_resource(region: Region, vmid: int) -> HaResource | None:
    try:
        return await region.reader.ha.resource(f"vm:{vmid}")
    except Missing:
        return None


async def _unknown_groups(region: Region, groups: set[str]) -> tuple[str, ...]:
    """Security groups that the region does not define; Proxmox accepts rules with them."""
    known = {g.group for g in await region.reader.firewall.groups()} if groups else set()
    return tuple(sorted(firewall_groups.names(groups) - known))


async def _previous_rule(obj: ProxmoxMachine, region: Region) -> HaRule | None:
    """The HA rule that the spec named before; None where HA has groups instead."""
    name = removed_settings(recorded(obj.spec), obj.spec).ha_group
    try:
        return await region.reader.ha.rule(name) if name else None
    except (Missing, errors.NotSupported):
        return None
