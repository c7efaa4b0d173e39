"""The loops that join claims and volumes: the PersistentVolume controller's part."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.storage import binding, labels
from moxwell.embedded.controllermanager.storage.labels import CLAIMS, CLASSES, VOLUMES, Json
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

LOOK_SECONDS = 15.0


def _claim_of(volume: Json) -> list[Key]:
    ref = volume["spec"].get("claimRef") or {}
    return [Key(ref["namespace"], ref["name"])] if ref.get("name") else []


def _volume_of(claim: Json) -> list[Key]:
    name = claim["spec"].get("volumeName")
    return [Key("", name)] if name else []


class Claims:
    """From a claim to a bound claim."""

    kind = CLAIMS
    finalizer = ""

    def __init__(self, kube: Kube, claims: Any) -> None:
        """``claims`` is the cache of them."""
        self._kube, self._claims = kube, claims
        self.watches: Sequence[Watch] = (
            Watch(VOLUMES, _claim_of),
            Watch(CLASSES, lambda _: self._unbound()),
        )

    def _unbound(self) -> list[Key]:
        return [
            Key(c["metadata"]["namespace"], c["metadata"]["name"])
            for c in self._claims.list()
            if not c["spec"].get("volumeName")
        ]

    async def reconcile(self, claim: Json) -> Outcome[Json]:
        wanted = claim["spec"].get("storageClassName") or ""
        klass = await self._kube.find(CLASSES, wanted) if wanted else None
        volumes = (await self._kube.list(VOLUMES)).items
        move = binding.next_move(claim, volumes, klass)
        if isinstance(move, binding.Bind):
            return await self._bind(claim, next(v for v in volumes if _is(v, move.volume)))
        if isinstance(move, binding.Ask):
            return await self._ask(claim, move.provisioner)
        status = {"phase": "Lost"} if move.lost else None
        return Outcome(status, again=LOOK_SECONDS, notes=(move.note,) if move.note else ())

    async def _ask(self, claim: Json, provisioner: str) -> Outcome[Json]:
        text = (
            f"Waiting for a volume to be created either by the external provisioner "
            f"'{provisioner}' or manually by the system administrator. If volume creation is "
            "delayed, please verify that the provisioner is running and correctly registered."
        )
        left = None
        if labels.annotation(claim, labels.PROVISIONER) != provisioner:
            change = {"metadata": {"annotations": {labels.PROVISIONER: provisioner}}}
            left = await self._merge(claim, change)
        return Outcome(None, again=LOOK_SECONDS, notes=(Note("ExternalProvisioning", text),),
                       left=left)  # fmt: skip

    async def _bind(self, claim: Json, volume: Json) -> Outcome[Json]:
        """The volume first: it is what two claims could want."""
        meta, name = claim["metadata"], volume["metadata"]["name"]
        ref = volume["spec"].get("claimRef") or {}
        if ref.get("uid") != meta["uid"]:
            await self._kube.merge(VOLUMES, name, reserved(claim, volume, given=bool(ref)))
        left = None
        if claim["spec"].get("volumeName") != name or not labels.annotation(
            claim, labels.COMPLETED
        ):
            marks = {labels.COMPLETED: "yes", labels.BY_CONTROLLER: "yes"}
            change = {"metadata": {"annotations": marks}, "spec": {"volumeName": name}}
            left = await self._merge(claim, change)
        if labels.phase(claim) == "Bound":
            return Outcome(None, left=left)
        spec = volume["spec"]
        status = {"phase": "Bound", "accessModes": spec["accessModes"]}
        return Outcome(status | {"capacity": spec["capacity"]}, left=left)

    async def _merge(self, claim: Json, change: Json) -> Json:
        meta = claim["metadata"]
        return await self._kube.merge(CLAIMS, meta["name"], change, meta["namespace"])


def reserved(claim: Json, volume: Json, *, given: bool) -> Json:
    """The change that makes a volume name a claim; ``given``: somebody had named it before."""
    meta = claim["metadata"]
    ref = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "resourceVersion": meta["resourceVersion"],
    }
    change: Json = {
        "metadata": {"resourceVersion": volume["metadata"]["resourceVersion"]},
        "spec": {"claimRef": ref},
    }
    if not given:
        change["metadata"]["annotations"] = {labels.BY_CONTROLLER: "yes"}
    return change


class Volumes:
    """The phase of every volume."""

    kind = VOLUMES
    finalizer = ""
    watches: Sequence[Watch] = (Watch(CLAIMS, _volume_of),)

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def reconcile(self, volume: Json) -> Outcome[Json]:
        ref = volume["spec"].get("claimRef") or {}
        claim = None
        if ref.get("uid"):
            claim = await self._kube.find(CLAIMS, ref["name"], ref["namespace"])
        return Outcome({"phase": binding.phase_of(volume, claim)})


def _is(volume: Json, name: str) -> bool:
    return bool(volume["metadata"]["name"] == name)
