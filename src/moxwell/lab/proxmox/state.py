"""
The state of one simulated region: plain slotted dataclasses, nothing that runs.

Everything that a save file must hold is here; timers, locks and connections live in
:mod:`moxwell.lab.proxmox.tasks` and are lost on a restart, as the workers of a real host are. Handlers
change these values in place. ``msgspec`` writes and reads them without further help (see
:mod:`moxwell.lab.proxmox.state_file`), so every field has a plain type.
"""

from dataclasses import dataclass, field
from typing import Any

Value = str | int | float
Conf = dict[str, Value]
Row = dict[str, Any]


@dataclass(slots=True)
class Pace:
    """How long things take, in seconds or bytes per second."""

    bandwidth: float = 500e6  # copying disk bytes
    migration_bandwidth: float = 500e6
    boot: float = 5.0  # until what runs inside a guest is up
    setup: float = 8.0  # until that has done, on its first boot, what its seed asks for
    shutdown: float = 1.0  # until a guest that listens has gone
    start: float = 0.0  # the start worker itself
    statd: float = 10.0  # rhythm of pvestatd, which fills /cluster/resources
    ha: float = 10.0  # rhythm of the HA manager
    refusal: float = 3.0  # delay before a 401
    agent_timeout: float = 3.0  # a silent agent is given up after this
    file_lock: float = 10.0  # waiting for a lock file


@dataclass(slots=True)
class Firewall:
    """One firewall file: of the cluster, a host, a guest (groups only in the cluster's)."""

    options: Row = field(default_factory=dict)
    rules: list[Row] = field(default_factory=list)
    aliases: dict[str, Row] = field(default_factory=dict)
    ipsets: dict[str, Row] = field(default_factory=dict)  # {"comment": ..., "entries": {cidr: row}}
    groups: dict[str, Row] = field(default_factory=dict)  # {"comment": ..., "rules": [...]}


@dataclass(slots=True)
class Host:
    """One node of a region."""

    name: str
    nodeid: int = 1
    address: str = ""
    cpus: int = 4
    sockets: int = 1
    memory: int = 16 << 30
    swap: int = 0
    root: int = 32 << 30  # size of the root file system
    cpu_model: str = "Simulated CPU"
    machine: str = "x86_64"
    numa_nodes: int = 1
    hugepages: dict[str, int] = field(default_factory=dict)  # page size in MiB -> pages
    kvm: bool = True
    online: bool = True
    boot: float = 0.0  # when it came up, epoch seconds
    lost_at: float | None = None
    maintenance: bool = False
    bridges: dict[str, Row] = field(default_factory=dict)  # iface -> row of /nodes/N/network
    settings: Row = field(default_factory=dict)  # node config: description, wakeonlan, dns, time
    firewall: Firewall = field(default_factory=Firewall)
    port: int = 0


@dataclass(slots=True)
class Volume:
    """One image, ISO, template or backup on a storage."""

    name: str  # what stands behind "storage:"
    format: str  # raw, qcow2, vmdk, subvol, iso, tgz, ...
    content: str  # images, rootdir, iso, vztmpl, import, snippets, backup
    size: int  # what a guest sees, bytes
    used: int = 0  # what it occupies, bytes
    vmid: int | None = None
    parent: str | None = None  # base volume name of a linked clone
    ctime: int = 0
    notes: str | None = None
    protected: bool = False
    data: bytes | None = None  # of an upload; None: zeros
    mark: str = ""  # identity of the content: copied by clones, new for a blank disk
    snapshots: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Storage:
    """One entry of storage.cfg with its volumes, kept per node unless shared."""

    name: str
    type: str
    options: dict[str, Any] = field(default_factory=dict)  # path, content, nodes, ... as configured
    capacity: int = 8 << 30
    used_extra: int = 0  # bytes that no volume explains (or: a fault that fills it)
    volumes: dict[str, dict[str, Volume]] = field(default_factory=dict)  # node or "" -> name

    @property
    def shared(self) -> bool:
        return bool(self.options.get("shared")) or self.type in SHARED_TYPES

    @property
    def content(self) -> set[str]:
        return {c for c in str(self.options.get("content", "")).split(",") if c}

    def shelf(self, node: str) -> dict[str, Volume]:
        """The volumes as one node sees them."""
        return self.volumes.setdefault("" if self.shared else node, {})

    def on(self, node: str) -> bool:
        """Is the storage configured for this node?"""
        nodes = str(self.options.get("nodes", ""))
        return not nodes or node in nodes.split(",")

    def used(self, node: str) -> int:
        return self.used_extra + sum(v.used for v in self.shelf(node).values())


SHARED_TYPES = frozenset(
    {"nfs", "cifs", "rbd", "cephfs", "glusterfs", "iscsi", "iscsidirect", "pbs", "drbd", "esxi"}
)


@dataclass(slots=True)
class Snapshot:
    """One snapshot section of a guest's configuration file."""

    name: str
    conf: Conf
    parent: str | None = None
    snaptime: int = 0
    description: str | None = None
    vmstate: str | None = None
    state: str | None = None  # "prepare" or "delete" while under way
    disks: Row = field(default_factory=dict)  # what the volumes were: {volid: {"size": ..}}


@dataclass(slots=True)
class Guest:
    """One VM or container."""

    vmid: int
    kind: str  # "qemu" or "lxc"
    node: str
    conf: Conf = field(default_factory=dict)  # typed as PVE returns it; includes lock, template
    pending: Conf = field(default_factory=dict)
    deletes: dict[str, int] = field(default_factory=dict)  # pending delete -> force (0 or 1)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    parent: str | None = None  # the snapshot it was last taken to or rolled back to
    running: bool = False
    paused: bool = False
    live: Conf = field(default_factory=dict)  # what the running process was started with
    pid: int = 0
    started: float = 0.0  # epoch seconds
    booted: bool = False  # what runs inside is up
    firewall: Firewall = field(default_factory=Firewall)
    special: Conf = field(default_factory=dict)  # cloud-init values in effect, and the like
    inside: Row = field(default_factory=dict)  # owned by the guest plug
    incarnation: int = 0  # differs when a vmid is used again

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
class Pool:
    poolid: str
    comment: str | None = None
    vms: list[int] = field(default_factory=list)
    storages: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Token:
    tokenid: str
    secret: str
    privsep: int = 1
    expire: int = 0
    comment: str | None = None


@dataclass(slots=True)
class User:
    userid: str
    password: str | None = None  # of the realm pve, or of a pam user of the world file
    enable: int = 1
    expire: int = 0
    firstname: str | None = None
    lastname: str | None = None
    email: str | None = None
    comment: str | None = None
    keys: str | None = None
    tokens: dict[str, Token] = field(default_factory=dict)


@dataclass(slots=True)
class Group:
    groupid: str
    comment: str | None = None
    users: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Acl:
    path: str
    type: str  # user, group, token
    ugid: str
    roleid: str
    propagate: int = 1


@dataclass(slots=True)
class Access:
    """user.cfg: who there is and what they may do."""

    users: dict[str, User] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    roles: dict[str, list[str]] = field(default_factory=dict)  # the ones that are not built in
    acl: list[Acl] = field(default_factory=list)
    realms: dict[str, Row] = field(default_factory=dict)


@dataclass(slots=True)
class HaResource:
    """One HA resource: what is asked (state) and what the manager has made of it (shown)."""

    sid: str
    type: str
    options: Row = field(default_factory=dict)  # state, group, max_restart, comment, ...
    shown: str = "queued"
    node: str = ""
    since: float = 0.0  # when shown was last decided
    moving_to: str | None = None
    home: str = ""  # the host it left for that host's maintenance


@dataclass(slots=True)
class Ha:
    resources: dict[str, HaResource] = field(default_factory=dict)
    groups: dict[str, Row] = field(default_factory=dict)
    rules: dict[str, Row] = field(default_factory=dict)
    armed_at: float | None = None  # when the first resource woke the manager
    master: str = ""


@dataclass(slots=True)
class Sdn:
    """The edited configuration, and the one that was applied last."""

    zones: dict[str, Row] = field(default_factory=dict)
    vnets: dict[str, Row] = field(default_factory=dict)
    subnets: dict[str, Row] = field(default_factory=dict)
    controllers: dict[str, Row] = field(default_factory=dict)
    ipams: dict[str, Row] = field(default_factory=lambda: {"pve": {"ipam": "pve", "type": "pve"}})
    dns: dict[str, Row] = field(default_factory=dict)
    running: dict[str, dict[str, Row]] = field(default_factory=dict)  # "zones" -> id -> row
    addresses: list[Row] = field(default_factory=list)  # PVE IPAM entries
    version: int = 0


@dataclass(slots=True)
class Task:
    """One worker, running or ended."""

    upid: str
    node: str
    pid: int
    pstart: int
    starttime: int
    type: str
    id: str
    user: str  # with "!token" when a token asked
    log: list[str] = field(default_factory=list)
    endtime: int | None = None
    exitstatus: str | None = None
    warnings: int = 0

    @property
    def running(self) -> bool:
        return self.exitstatus is None


@dataclass(slots=True)
class Report:
    """What pvestatd last said about a guest; /cluster/resources shows only this."""

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


@dataclass(slots=True)
class Region:
    """One Proxmox cluster, or one single node."""

    name: str
    version: str = "8.4.21"
    release: str = "8.4"
    repoid: str = "deadbeefdeadbeef"
    cluster: str | None = None
    config_version: int = 1
    api_node: str = ""
    secret: str = ""  # signs tickets
    pace: Pace = field(default_factory=Pace)
    hosts: dict[str, Host] = field(default_factory=dict)
    storages: dict[str, Storage] = field(default_factory=dict)
    guests: dict[int, Guest] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    ha: Ha = field(default_factory=Ha)
    sdn: Sdn = field(default_factory=Sdn)
    firewall: Firewall = field(default_factory=Firewall)
    options: Row = field(default_factory=dict)  # datacenter.cfg
    replication: dict[str, Row] = field(default_factory=dict)
    backup_jobs: dict[str, Row] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)  # upid -> task, oldest first
    cluster_log: list[Row] = field(default_factory=list)
    reports: dict[int, Report] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)  # guests that pvestatd has not looked at yet
    reported_at: float = 0.0
    counter: int = 1000  # pids, incarnations: one sequence
    files: dict[str, Row] = field(default_factory=dict)  # files of the hosts a world declares

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    def next_number(self) -> int:
        self.counter += 1
        return self.counter
