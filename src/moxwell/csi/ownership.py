"""
Proves that a volume belongs to this driver and tenant, before any operation on it.

A volume handle is written by users, so it proves nothing. What counts is what only the driver, the
API server or the operator can write: the tenant key in the name of a disk, the description of a
helper VM, the UID of a claim in the name of a disk of an earlier version, or the driver's settings.
"""

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

import structlog

from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.csi.helper_vms import SNAPSHOT_TAG, HelperVM, HelperVMs
from moxwell.csi.ids import (
    VolumeId,
    find_snapshot,
    find_volume,
    is_snapshot_of,
    source_hash,
    tenant_key,
    tenant_key_in,
    volume_name,
)
from moxwell.csi.journal import VolumeJournal
from moxwell.csi.pvc import CLAIMS, VOLUMES
from moxwell.errors import Denied, MoxwellError, Unreachable
from moxwell.kube.client import Kube
from moxwell.pve.ownership import is_helper_vm
from moxwell.pve.regions import Region

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SYSTEM_NAMESPACE = "kube-system"
RETRY_SECONDS = 3.0
TENANT_FIELD = "tenant"
PROVED_KEY = "owned:"
_CLAIMED = re.compile(r"pvc-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")

_PREFIX = re.compile(r"^vm-\d+-")

log = structlog.get_logger(__name__)


class ForeignVolume(Denied):
    """The volume belongs to another owner, or to none; it is not changed."""

    reason = "ForeignVolume"


class StaticVolume(Denied):
    """The operator allows the use of the volume, but not its deletion."""

    reason = "StaticVolume"


class TenantIdentity:
    """The tenant that a driver serves: the configured one, or the UID of ``kube-system``.

    The API server chooses the UID and refuses to delete that namespace, so no user can obtain the
    UID of another cluster.
    """

    def __init__(self, driver: str, tenant: str = "", kube: Kube | None = None) -> None:
        self._driver, self._tenant, self._kube = driver, tenant, kube

    async def key(self) -> str:
        """The tenant key, as names of disks and descriptions of helper VMs contain it."""
        if not self._tenant and self._kube is not None:
            found = await self._kube.find(NAMESPACES, SYSTEM_NAMESPACE)
            uid = (found or {}).get("metadata", {}).get("uid")
            if not uid:
                raise Unreachable(f"namespace {SYSTEM_NAMESPACE} does not exist yet")
            self._tenant = str(uid)
        return tenant_key(self._driver, self._tenant)


class EarlierVolumes:
    """Volumes of earlier versions, whose names have the UID of a claim but no tenant key.

    A claim with that UID proves the volume, because the API server chooses UIDs. Proved names are
    recorded, because a volume is deleted after its claim. Only the operator may write the record.
    """

    def __init__(self, identity: TenantIdentity, kube: Kube | None, record: VolumeJournal) -> None:
        self._identity, self._kube, self._record, self._swept = identity, kube, record, False

    async def run(self, clock: Clock) -> None:
        """Sweep once, as soon as the API answers."""
        while True:
            try:
                return await self.sweep()
            except MoxwellError as error:
                log.warning("claims not read", error=str(error))
                await clock.sleep(RETRY_SECONDS)

    async def sweep(self) -> None:
        """Record the names of all volumes that existing claims prove."""
        await self._prove_all("")
        self._swept = True

    async def is_proved(self, name: str) -> bool:
        """Return whether a claim of this cluster has, or had, the UID in a volume's name."""
        if not _CLAIMED.fullmatch(name):
            return False
        if not self._swept:
            await self.sweep()
        if await self._record.get(await self._key_of(name)):
            return True
        return await self._prove_all(name)

    async def handles(self) -> tuple[str, ...]:
        """The volume handles of all PersistentVolumes, which users write; they prove nothing."""
        return tuple((await self._handles()).values())

    async def _handles(self) -> dict[str, str]:
        rows = (await self._kube.list(VOLUMES)).items if self._kube is not None else ()
        csi = {pv["metadata"]["name"]: pv["spec"].get("csi") or {} for pv in rows}
        return {name: str(row.get("volumeHandle", "")) for name, row in csi.items() if row}

    async def _prove_all(self, wanted: str) -> bool:
        claims = (await self._kube.list(CLAIMS)).items if self._kube is not None else ()
        names = {f"pvc-{claim['metadata']['uid']}" for claim in claims}
        unkeyed = {n for n, h in (await self._handles()).items() if not tenant_key_in(h)}
        bound = [c for c in claims if c["spec"].get("volumeName") in unkeyed]
        earlier = {f"pvc-{claim['metadata']['uid']}" for claim in bound}
        for name in sorted(names & {wanted} if wanted else earlier):
            key = await self._key_of(name)
            if not await self._record.get(key):
                await self._record.put(key, {"by": "claim"})
        return wanted in names

    async def _key_of(self, name: str) -> str:
        return f"{PROVED_KEY}{await self._identity.key()}/{name}"


class VolumeOwnership:
    """Decides which volumes and helper VMs this driver may change for its tenant."""

    def __init__(
        self,
        identity: TenantIdentity,
        helper_vms: HelperVMs,
        earlier: EarlierVolumes,
        *,
        owner: int,
        static: Callable[[], tuple[str, ...]] = tuple,
        by_prefix: bool = False,
        every_tenant: bool = False,
    ) -> None:
        """
        ``static`` returns patterns of volume ids that the operator grants to this tenant.

        ``every_tenant`` is for commands of the operator: the volumes of all tenants are owned.
        """
        self._identity, self._helper_vms, self.earlier = identity, helper_vms, earlier
        self._owner, self._static, self._every_tenant = owner, static, every_tenant
        self._by_prefix = by_prefix or every_tenant

    async def key(self) -> str:
        """The tenant key of new volumes."""
        return await self._identity.key()

    async def prove(self, region: Region, volume: VolumeId) -> str:
        """Return the proof, for the audit record; raises ForeignVolume."""
        proof = await self._proof(region, volume)
        if proof:
            return proof
        raise ForeignVolume(
            f"{volume} does not belong to this cluster; it is not touched. A disk that the driver "
            "did not create needs a grant of the operator (features.staticVolumes)"
        )

    async def owns(self, region: Region, volume: VolumeId) -> bool:
        """Return whether the volume belongs to this driver and tenant."""
        return bool(await self._proof(region, volume))

    async def refuse_static(self, region: Region, volume: VolumeId) -> None:
        """Raise StaticVolume if only a grant of the operator allows the use of the volume."""
        if not await self._proof_of_creation(region, volume) and self._is_static(volume):
            raise StaticVolume(
                f"{volume} was not created by the driver and is not deleted: set the reclaim policy"
                " of its PersistentVolume to Retain and delete the disk in Proxmox"
            )

    async def _proof(self, region: Region, volume: VolumeId) -> str:
        proof = await self._proof_of_creation(region, volume)
        return proof or ("grant of the operator" if self._is_static(volume) else "")

    def _is_static(self, volume: VolumeId) -> bool:
        return any(fnmatchcase(str(volume), pattern) for pattern in self._static())

    async def _proof_of_creation(self, region: Region, volume: VolumeId) -> str:
        named = tenant_key_in(volume.disk)
        if named and not await self._is_on_other_guest(region, volume):
            return "tenant key in the name of the disk" if await self._is_own(named) else ""
        if self._helper_vms.is_owner(volume):
            vm = await self._helper_vms.find_for(region, volume)
            owned = vm is not None and await self.owns_vm(region, vm)
            return "description of the helper VM" if owned else ""
        if volume.owner != self._owner:
            return ""
        if await self.earlier.is_proved(volume_name(volume)):
            return "UID of a claim in the name of the disk"
        if await self._has_own_source(region, volume):
            return "hash of an own volume in the name of the snapshot"
        return "name prefix, allowed by the operator" if self._by_prefix else ""

    async def _has_own_source(self, region: Region, volume: VolumeId) -> bool:
        """Return whether a snapshot of an earlier version is a copy of an own volume."""
        if source_hash(volume.disk) is None:
            return False
        for handle in await self.earlier.handles():
            source = find_volume(handle)
            if source is not None and is_snapshot_of(volume.disk, handle):
                return await self.owns(region, source)
        return False

    async def _is_on_other_guest(self, region: Region, volume: VolumeId) -> bool:
        """Return whether the VMID in the name is that of a guest that is not a helper VM."""
        if not self._helper_vms.is_owner(volume):
            return False
        guest = region.inventory.find(volume.owner)
        if guest is not None:
            return not is_helper_vm(guest.tags)
        return not await region.inventory.is_gone(volume.owner)

    async def _is_own(self, key: str) -> bool:
        return self._every_tenant or key == await self.key()

    async def refuse_vm(self, region: Region, vm: HelperVM) -> None:
        """Raise ForeignVolume unless the helper VM belongs to this driver and tenant."""
        if not await self.owns_vm(region, vm):
            raise ForeignVolume(f"guest {vm.vmid} has the same name but belongs to another cluster")

    async def owns_vm(self, region: Region, vm: HelperVM) -> bool:
        """Return whether a helper VM belongs to this driver and tenant."""
        if not is_helper_vm(vm.config.tags) or vm.is_copy:
            return False
        tenant = vm.field(TENANT_FIELD)
        if tenant:
            return await self._is_own(tenant)
        if vm.is_reference:
            volume = find_volume(vm.field("volume"))
            return volume is not None and await self.owns(region, volume)
        if not self._helper_vms.is_marked_by_driver(region, vm):
            return False
        if SNAPSHOT_TAG in vm.tags:
            return await self._owns_source(region, vm.field("source"))
        name = _PREFIX.sub("", vm.field("name"))  # a migrated volume has the name of its disk
        return self._by_prefix or await self.earlier.is_proved(name)

    async def _owns_source(self, region: Region, source: str) -> bool:
        snapshot = find_snapshot(source)
        volume = snapshot.volume if snapshot else find_volume(source)
        return volume is not None and await self.owns(region, volume)
