"""
The saved state of one simulated region, as dataclasses.

Timers, locks and connections are in :mod:`moxwell.lab.proxmox.tasks` and are lost on a restart, as
are the workers of a real host. Handlers change these objects in place. ``msgspec`` encodes them
(see :mod:`moxwell.lab.proxmox.state_file`), so every field has a plain type or is ``FileData``.
"""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Value = str | int | float
Conf = dict[str, Value]
Row = dict[str, Any]


@dataclass(slots=True)
class RegionPace:
    """How long operations take, in seconds or bytes per second."""

    bandwidth: float = 500e6  # disk copies
    migration_bandwidth: float = 500e6
    boot: float = 5.0  # until a guest operating system has booted
    setup: float = 8.0  # additional duration of a first boot, for cloud-init and kubeadm
    shutdown: float = 1.0  # until a guest that handles ACPI has shut down
    start: float = 0.0  # of the start worker
    statd: float = 10.0  # interval of pvestatd, which updates /cluster/resources
    ha: float = 10.0  # interval of the HA manager
    refusal: float = 3.0  # delay before a 401
    agent_timeout: float = 3.0  # timeout of guest agent commands
    file_lock: float = 10.0  # timeout of lock files
    cleanup: float = 0.0  # how long qmeventd holds the lock file of a VM that stopped


@dataclass(slots=True)
class SimFirewall:
    """One firewall configuration file (security groups only in the cluster's)."""

    options: Row = field(default_factory=dict)
    rules: list[Row] = field(default_factory=list)
    aliases: dict[str, Row] = field(default_factory=dict)
    ipsets: dict[str, Row] = field(default_factory=dict)  # {"comment": ..., "entries": {cidr: row}}
    groups: dict[str, Row] = field(default_factory=dict)  # {"comment": ..., "rules": [...]}


@dataclass(slots=True)
class SimHost:
    """One node of a region."""

    name: str
    nodeid: int = 1
    address: str = ""
    cpus: int = 4
    sockets: int = 1
    memory: int = 16 << 30
    swap: int = 0
    root: int = 32 << 30  # size of the root file system
    cpu_model: str = "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz"
    machine: str = "x86_64"
    numa_nodes: int = 1
    hugepages: dict[str, int] = field(default_factory=dict)  # page size in MiB -> pages
    kvm: bool = True
    online: bool = True
    boot: float = 0.0  # boot time, epoch seconds
    lost_at: float | None = None
    maintenance: bool = False
    bridges: dict[str, Row] = field(default_factory=dict)  # iface -> row of /nodes/N/network
    new_network: dict[str, Row] | None = None  # what is written and not yet applied
    settings: Row = field(default_factory=dict)  # node config: description, wakeonlan, dns, time
    firewall: SimFirewall = field(default_factory=SimFirewall)
    pci: dict[str, Row] = field(default_factory=dict)  # address -> row of hardware/pci
    usb: list[Row] = field(default_factory=list)  # rows of hardware/usb
    port: int = 0


class FileData(bytes):
    """The content of an uploaded or downloaded file, which is saved once."""

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self).hexdigest()


@dataclass(slots=True)
class SimVolume:
    """One image, ISO, template or backup on a storage."""

    name: str  # the part after "storage:"
    format: str  # raw, qcow2, vmdk, subvol, iso, tgz, ...
    content: str  # images, rootdir, iso, vztmpl, import, snippets, backup
    size: int  # virtual size in bytes
    used: int = 0  # allocated bytes
    vmid: int | None = None
    parent: str | None = None  # base volume of a linked clone
    ctime: int = 0
    notes: str | None = None
    protected: bool = False
    data: FileData | None = None  # content of an upload; None: zeros
    content_id: str = ""  # content id: copied by clones, new for an empty disk
    snapshots: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SimStorage:
    """One entry of storage.cfg with its volumes, per node unless shared."""

    name: str
    type: str
    options: dict[str, Any] = field(default_factory=dict)  # path, content, nodes, ...
    capacity: int = 8 << 30
    used_extra: int = 0  # usage not caused by volumes (set by the action fill-storage)
    volumes: dict[str, dict[str, SimVolume]] = field(
        default_factory=dict
    )  # node or "" -> name -> volume

    @property
    def shared(self) -> bool:
        return bool(self.options.get("shared")) or self.type in SHARED_TYPES

    @property
    def content(self) -> set[str]:
        return {c for c in str(self.options.get("content", "")).split(",") if c}

    def volumes_on(self, node: str) -> dict[str, SimVolume]:
        """The volumes that one node sees."""
        return self.volumes.setdefault("" if self.shared else node, {})

    def is_available_on(self, node: str) -> bool:
        """Whether the storage is configured for this node."""
        nodes = str(self.options.get("nodes", ""))
        return not nodes or node in nodes.split(",")

    def used(self, node: str) -> int:
        return self.used_extra + sum(v.used for v in self.volumes_on(node).values())


SHARED_TYPES = frozenset(
    {"nfs", "cifs", "rbd", "cephfs", "glusterfs", "iscsi", "iscsidirect", "pbs", "drbd", "esxi"}
)


@dataclass(slots=True)
class SimSnapshot:
    """One snapshot section of a guest's configuration file."""

    name: str
    conf: Conf
    parent: str | None = None
    snaptime: int = 0
    description: str | None = None
    vmstate: str | None = None
    state: str | None = None  # "prepare" or "delete" during the task
    disks: Row = field(default_factory=dict)  # state of the volumes: {volid: {"size": ..}}


@dataclass(slots=True)
class SimGuest:
    """One VM or container."""

    vmid: int
    kind: str  # "qemu" or "lxc"
    node: str
    conf: Conf = field(default_factory=dict)  # values as PVE returns them; includes lock, template
    pending: Conf = field(default_factory=dict)
    deletes: dict[str, int] = field(default_factory=dict)  # pending delete -> force (0 or 1)
    snapshots: dict[str, SimSnapshot] = field(default_factory=dict)
    parent: str | None = None  # the snapshot that was last taken or rolled back to
    running: bool = False
    paused: bool = False
    live: Conf = field(default_factory=dict)  # configuration of the running process
    pid: int = 0
    started: float = 0.0  # epoch seconds
    booted: bool = False  # the guest operating system has booted
    firewall: SimFirewall = field(default_factory=SimFirewall)
    special: Conf = field(
        default_factory=dict
    )  # values that the cloud-init drive still has, and failed hotplugs
    incarnation: int = 0  # differs when a VMID is reused
    cpu_load: float = 0.01  # share of its vCPUs that the guest uses
    memory_load: float = 0.5  # share of its memory that the guest uses
    used_cpu: float = 0.0  # what its operating system reported, as shares
    used_memory: float = 0.0
    fault_status: str = ""  # a status of QEMU that a fault sets: internal-error, io-error, ...

    @property
    def cpu_share(self) -> float:
        """The share of its vCPUs in use."""
        return max(self.cpu_load, self.used_cpu)

    @property
    def memory_share(self) -> float:
        """The share of its memory in use."""
        return max(self.memory_load, self.used_memory)

    @property
    def status_word(self) -> str:
        """The status of QEMU of a running guest, other than ``running``."""
        return self.fault_status or ("paused" if self.paused else "")

    @property
    def lock(self) -> str:
        return str(self.conf.get("lock", ""))

    @property
    def template(self) -> bool:
        return bool(self.conf.get("template"))

    @property
    def uid(self) -> str:
        return f"{self.kind}/{self.vmid}"


@dataclass(slots=True)
class SimPool:
    poolid: str
    comment: str | None = None
    vms: list[int] = field(default_factory=list)
    storages: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SimToken:
    tokenid: str
    secret: str
    privsep: int = 1
    expire: int = 0
    comment: str | None = None


@dataclass(slots=True)
class SimUser:
    userid: str
    password: str | None = None  # of the realm pve, or of a pam user in the world file
    enable: int = 1
    expire: int = 0
    firstname: str | None = None
    lastname: str | None = None
    email: str | None = None
    comment: str | None = None
    keys: str | None = None
    tokens: dict[str, SimToken] = field(default_factory=dict)


@dataclass(slots=True)
class SimGroup:
    groupid: str
    comment: str | None = None
    users: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SimAcl:
    path: str
    type: str  # user, group, token
    ugid: str
    roleid: str
    propagate: int = 1


@dataclass(slots=True)
class SimAccess:
    """user.cfg: users, groups, roles and ACLs."""

    users: dict[str, SimUser] = field(default_factory=dict)
    groups: dict[str, SimGroup] = field(default_factory=dict)
    roles: dict[str, list[str]] = field(default_factory=dict)  # without built-in roles
    acl: list[SimAcl] = field(default_factory=list)
    realms: dict[str, Row] = field(default_factory=dict)


@dataclass(slots=True)
class SimHaResource:
    """
    One HA resource: its options with the requested state, and the state set by the HA manager.
    """

    sid: str
    type: str
    options: Row = field(default_factory=dict)  # state, group, max_restart, comment, ...
    crm_state: str = "queued"
    node: str = ""
    state_changed_at: float = 0.0  # when the state last changed
    migration_target: str | None = None
    maintenance_node: str = ""  # the node it left because of maintenance


@dataclass(slots=True)
class SimHa:
    resources: dict[str, SimHaResource] = field(default_factory=dict)
    groups: dict[str, Row] = field(default_factory=dict)
    rules: dict[str, Row] = field(default_factory=dict)
    master: str = ""
    idle_since: float | None = None  # when the last resource was deleted


@dataclass(slots=True)
class SimSdn:
    """The SDN configuration, and the one last applied."""

    zones: dict[str, Row] = field(default_factory=dict)
    vnets: dict[str, Row] = field(default_factory=dict)
    subnets: dict[str, Row] = field(default_factory=dict)
    controllers: dict[str, Row] = field(default_factory=dict)
    ipams: dict[str, Row] = field(default_factory=lambda: {"pve": {"ipam": "pve", "type": "pve"}})
    dns: dict[str, Row] = field(default_factory=dict)
    running: dict[str, dict[str, Row]] = field(default_factory=dict)  # "zones" -> id -> row
    addresses: list[Row] = field(default_factory=list)  # PVE IPAM entries
    firewalls: dict[str, SimFirewall] = field(default_factory=dict)  # by vnet
    version: int = 0
    lock: str = ""  # the token of the global lock, if it is held


@dataclass(slots=True)
class SimTask:
    """One worker, running or ended."""

    upid: str
    node: str
    pid: int
    pstart: int
    starttime: int
    type: str
    id: str
    user: str  # with "!token" for an API token
    log: list[str] = field(default_factory=list)
    endtime: int | None = None
    exitstatus: str | None = None
    warnings: int = 0

    @property
    def running(self) -> bool:
        return self.exitstatus is None


@dataclass(slots=True)
class StatdStatus:
    """The last status that pvestatd broadcast about a guest; used by /cluster/resources."""

    kind: str
    node: str
    status: str = "unknown"
    name: str | None = None
    template: int = 0
    maxcpu: int = 1
    maxmem: int = 0
    maxdisk: int = 0
    started: float = 0.0
    lock: str | None = None
    cpu_load: float = 0.01
    memory_load: float = 0.5


@dataclass(slots=True)
class SimRegion:
    """One Proxmox VE cluster, or one standalone node."""

    name: str
    version: str = "8.4.21"
    release: str = "8.4"
    repoid: str = "deadbeefdeadbeef"
    cluster: str | None = None
    config_version: int = 1
    api_node: str = ""
    secret: str = ""  # signs tickets
    pace: RegionPace = field(default_factory=RegionPace)
    hosts: dict[str, SimHost] = field(default_factory=dict)
    storages: dict[str, SimStorage] = field(default_factory=dict)
    guests: dict[int, SimGuest] = field(default_factory=dict)
    pools: dict[str, SimPool] = field(default_factory=dict)
    access: SimAccess = field(default_factory=SimAccess)
    ha: SimHa = field(default_factory=SimHa)
    sdn: SimSdn = field(default_factory=SimSdn)
    firewall: SimFirewall = field(default_factory=SimFirewall)
    options: Row = field(default_factory=dict)  # datacenter.cfg
    replication: dict[str, Row] = field(default_factory=dict)
    backup_jobs: dict[str, Row] = field(default_factory=dict)
    mappings: dict[str, dict[str, Row]] = field(default_factory=dict)  # pci, usb, dir -> id -> row
    tasks: dict[str, SimTask] = field(default_factory=dict)  # upid -> task, oldest first
    cluster_log: list[Row] = field(default_factory=list)
    statd_status: dict[int, StatdStatus] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)  # guests changed since the last pvestatd update
    status_updated_at: float = 0.0
    counter: int = 1000  # sequence of pids and incarnations
    files: dict[str, Row] = field(
        default_factory=dict
    )  # files on hosts, declared by the world file

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    def next_number(self) -> int:
        self.counter += 1
        return self.counter
