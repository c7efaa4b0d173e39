"""The parameters of the VM endpoints, as PVE declares them."""

from collections.abc import Mapping

from moxwell.lab.proxmox.config_schema import formats, vm
from moxwell.lab.proxmox.config_schema.devices import MACHINE
from moxwell.lab.proxmox.config_schema.drives import DRIVES, UNUSED
from moxwell.lab.proxmox.route import Param

BOOL = Param(type="boolean")
TEXT = Param()
INTEGER = Param(type="integer")
WHOLE = Param(type="integer", minimum=0)
NODE = Param(optional=False, format=formats.node)
VMID = Param(type="integer", optional=False, format=formats.vmid, minimum=100, maximum=999999999)
STORAGE = Param(format=formats.storage_id)
DIGEST = Param(max_length=40)
SNAPSHOT = Param(optional=False, format=formats.config_id, max_length=40)
BASE: Mapping[str, Param] = {"node": NODE, "vmid": VMID}


def with_base(**extra: Param) -> dict[str, Param]:
    """node, vmid and others (``_`` in names stands for ``-``: see ``named``)."""
    return {**BASE, **extra}


def named(extra: Mapping[str, Param]) -> dict[str, Param]:
    return {**BASE, **extra}


CLONE = with_base(
    newid=VMID,
    name=Param(format=formats.dns_name),
    description=TEXT,
    pool=Param(format=formats.pool_id),
    snapname=Param(format=formats.config_id, max_length=40),
    storage=STORAGE,
    format=Param(enum=("raw", "qcow2", "vmdk")),
    full=BOOL,
    target=Param(format=formats.node),
    bwlimit=WHOLE,
)
RESIZE = with_base(
    disk=Param(optional=False, enum=DRIVES),
    size=Param(optional=False, pattern=r"\+?\d+(\.\d+)?[KMGT]?"),
    digest=DIGEST,
    skiplock=BOOL,
)
MOVE = named(
    {
        "disk": Param(optional=False, enum=(*DRIVES, *UNUSED)),
        "storage": STORAGE,
        "format": Param(enum=("raw", "qcow2", "vmdk")),
        "delete": BOOL,
        "digest": DIGEST,
        "bwlimit": WHOLE,
        "target-vmid": Param(type="integer", format=formats.vmid, minimum=100, maximum=999999999),
        "target-disk": Param(enum=(*DRIVES, *UNUSED)),
        "target-digest": DIGEST,
    }
)
MIGRATE = named(
    {
        "target": NODE,
        "online": BOOL,
        "force": BOOL,
        "migration_type": Param(enum=("secure", "insecure")),
        "migration_network": Param(format=formats.cidr),
        "with-local-disks": BOOL,
        "with-conntrack-state": Param(type="boolean", version=9),
        "targetstorage": Param(format=formats.storage_pairs),
        "bwlimit": WHOLE,
    }
)
START = named(
    {
        "skiplock": BOOL,
        "stateuri": Param(max_length=128),
        "migratedfrom": Param(format=formats.node),
        "migration_type": Param(enum=("secure", "insecure")),
        "migration_network": Param(format=formats.cidr),
        "machine": Param(format=vm.bound(MACHINE, "machine", 9)),
        "force-cpu": TEXT,
        "targetstorage": Param(format=formats.storage_pairs),
        "timeout": WHOLE,
        "nets-host-mtu": Param(pattern=r"net\d+=\d+(,net\d+=\d+)*"),
        "with-conntrack-state": Param(type="boolean", version=9),
    }
)
STOP = named(
    {
        "skiplock": BOOL,
        "migratedfrom": Param(format=formats.node),
        "timeout": WHOLE,
        "keepActive": BOOL,
        "overrule-shutdown": BOOL,
    }
)
SHUTDOWN = with_base(skiplock=BOOL, timeout=WHOLE, forceStop=BOOL, keepActive=BOOL)
SUSPEND = with_base(
    skiplock=BOOL,
    todisk=BOOL,
    statestorage=Param(format=formats.storage_id, requires="todisk"),
)
DESTROY = named({"skiplock": BOOL, "purge": BOOL, "destroy-unreferenced-disks": BOOL})
FEATURE = with_base(
    feature=Param(optional=False, enum=("snapshot", "clone", "copy")),
    snapname=Param(format=formats.config_id, max_length=40),
)
