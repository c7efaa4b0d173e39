"""
What lies in a folder for programs to read: keys, certificates, kubeconfigs, ports. All 0600.

``Shelf`` keeps pairs by name and makes anew what is due; a program whose files changed is started
again by the supervisor, which looks at their content. ``Record`` is what is remembered of a tenant:
its prefix in etcd is that of its birth, whatever object owns it later.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from moxwell.app.state_dir import is_free
from moxwell.clock import Clock
from moxwell.embedded.apiserver.auth import ca as authority
from moxwell.embedded.apiserver.auth.ca import write_private
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import Wish
from moxwell.embedded.controlplanes.binaries import certificates, flags
from moxwell.embedded.controlplanes.binaries.certificates import Leaf, Pair


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a tenant."""

    uid: str
    version: str
    port: int
    manager_port: int
    scheduler_port: int
    rotation: str = ""
    welcomed: bool = False  # it was up once, and nodes may join


class Shelf:
    """Pairs in a folder: ``NAME.crt`` and ``NAME.key``."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock = folder, clock

    def find(self, name: str, public: str = "crt") -> Pair | None:
        """What lies there under a name."""
        certificate, key = self._folder / f"{name}.{public}", self._folder / f"{name}.key"
        if not (certificate.exists() and key.exists()):
            return None
        return Pair(certificate.read_bytes(), key.read_bytes())

    def put(self, name: str, pair: Pair, public: str = "crt") -> Pair:
        """Lay a pair there; the same one is not written again."""
        self.lay(f"{name}.key", pair.key)
        self.lay(f"{name}.{public}", pair.certificate)
        return pair

    def lay(self, name: str, data: bytes) -> None:
        """One file, written only if it differs."""
        path = self._folder / name
        if not path.exists() or path.read_bytes() != data:
            write_private(path, data)

    def authority(self, name: str, title: str) -> Pair:
        """An authority, made once, and with the same key for longer before it ends."""
        kept, now = self.find(name), self._clock.now()
        if kept is None:
            return self.put(name, certificates.make_authority(title, now))
        return self.put(name, certificates.extended(kept, now))

    def tokens(self) -> Pair:
        """The keys of service account tokens, made once."""
        return self.find("sa", "pub") or self.put("sa", certificates.token_keys(), "pub")

    def leaf(self, name: str, leaf: Leaf, signer: Pair, *, fresh: bool = False) -> Pair:
        """A certificate that is good now; ``fresh``: a new one in any case."""
        kept = None if fresh else self.find(name)
        return self.put(name, certificates.renewed(kept, leaf, signer, self._clock.now()))


def server_names(wish: Wish, host: str) -> tuple[str, ...]:
    """By what a tenant's API is called."""
    names = (
        host,
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        f"kubernetes.default.svc.{wish.domain}",
        flags.first_address(wish.service_cidr),
        *wish.sans,
        *((wish.address,) if wish.address else ()),
    )
    return tuple(dict.fromkeys(names))


class Tenant:
    """The folder of one tenant."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self._shelf, self._table = Shelf(folder / "pki", clock), Shelf(folder, clock)

    @property
    def _file(self) -> Path:
        return self.folder / "tenant.json"

    def find(self) -> Record | None:
        """What is remembered; None: there is no such tenant here."""
        if not self._file.exists():
            return None
        return msgspec.json.decode(self._file.read_bytes(), type=Record)

    def remember(self, record: Record) -> Record:
        """Keep it; the same one is not written again."""
        if self.find() != record:
            write_private(self._file, msgspec.json.encode(record))
        return record

    def begin(self, wish: Wish, port_of: Callable[[], int]) -> Record:
        """What is known of a tenant, made up for a new one."""
        found = self.find()
        if found is not None:
            return found
        taken: set[int] = set()
        ports = [_another(port_of, taken) for _ in range(3)]
        made = Record(
            uid=wish.uid,
            version=wish.version,
            port=ports[0],
            manager_port=ports[1],
            scheduler_port=ports[2],
            rotation=wish.rotation,
        )
        return self.remember(made)

    def write(self, wish: Wish, seat: flags.Seat, etcd: Pair, *, fresh: bool) -> None:
        """Everything its programs read, renewed where that is due."""
        shelf = self._shelf
        ca = shelf.authority("ca", "kubernetes")
        front = shelf.authority("front-proxy-ca", "front-proxy-ca")
        shelf.tokens()
        shelf.lay("etcd-ca.crt", etcd.certificate)
        for name, leaf, signer in _leaves(wish, seat, ca, front, etcd):
            shelf.leaf(name, leaf, signer, fresh=fresh)
        url = f"https://{seat.host}:{seat.port}"
        for name in ("admin", "controller-manager", "scheduler"):
            pair = shelf.find(f"{name}-client")
            assert pair is not None, "it was made above"
            shown = authority.Pair(pair.certificate, pair.key)
            text = authority.kubeconfig(url, ca.certificate, shown, wish.key.name)
            self._table.lay(f"{name}.conf", text.encode())

    def read(self, name: str) -> str:
        """A file's text."""
        return (self.folder / name).read_text()


def _leaves(
    wish: Wish, seat: flags.Seat, ca: Pair, front: Pair, etcd: Pair
) -> Iterator[tuple[str, Leaf, Pair]]:
    masters = ("system:masters",)
    names = server_names(wish, seat.host)
    owner = seat.prefix.strip("/").rpartition("/")[2]
    yield "apiserver", Leaf(user="kube-apiserver", names=names, client=False), ca
    yield "component", Leaf(user="moxwell", names=("127.0.0.1", "localhost"), client=False), ca
    yield "kubelet-client", Leaf(user="kube-apiserver-kubelet-client", groups=masters), ca
    yield "admin-client", Leaf(user="kubernetes-admin", groups=masters), ca
    yield "controller-manager-client", Leaf(user="system:kube-controller-manager"), ca
    yield "scheduler-client", Leaf(user="system:kube-scheduler"), ca
    yield "front-proxy-client", Leaf(user="front-proxy-client"), front
    yield "etcd-client", Leaf(user=owner), etcd


def _another(port_of: Callable[[], int], taken: set[int]) -> int:
    while True:
        port = port_of()
        if port not in taken:
            taken.add(port)
            return port


def steady_port(port: int, port_of: Callable[[], int], *, ours: bool) -> int:
    """The same port while it is free or we sit on it; of no interest to others, so changeable."""
    return port if ours or is_free(port) else port_of()
