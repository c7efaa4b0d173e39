"""Access to Talos' API on one machine: what a caller needs, and the call that begins etcd."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from moxwell.errors import Busy
from moxwell.pki.certificates import KeyPair

PORT = 50000


class TalosBusy(Busy):
    """The machine cannot do it now: it has not read its configuration yet, for example."""

    reason = "TalosBusy"
    retry_seconds = 5.0


@dataclass(frozen=True, slots=True)
class TalosAccess:
    """A machine and a client certificate for it."""

    address: str
    ca: bytes
    client: KeyPair


class TalosApi(Protocol):
    """Talos' API on one machine."""

    async def bootstrap(self) -> None:
        """Begin etcd there; nothing if it has begun already."""
        ...


DialTalos = Callable[[TalosAccess], TalosApi]
