"""The PersistentVolume controller: binds claims to volumes and sets the phase of volumes."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from moxwell.embedded.controllermanager.storage.persistentvolume.plan import (
    ClaimProblem,
    ClaimReason,
    ExternalProvisioning,
    ObservedClaim,
    decide,
    describe_claim,
    next_move,
    provisioning_message,
    volume_phase,
)
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.watches import Watch

Json = dict[str, Any]


def _claim_of(volume: Json) -> list[Key]:
    ref = volume["spec"].get("claimRef") or {}
    return [Key(ref["namespace"], ref["name"])] if ref.get("name") else []


def _volume_of(claim: Json) -> list[Key]:
    name = claim["spec"].get("volumeName")
    return [Key("", name)] if name else []


class PersistentVolumeClaimController(WritingReconciler[Json, ObservedClaim, Json]):
    """
    Reconciles PersistentVolumeClaims, with ``per_shard=1``.

    Volumes come from their cache; one that a claim names and the cache lacks is read live, as a
    missing volume means lost data.
    """

    kind = PERSISTENT_VOLUME_CLAIMS

    def __init__(self, kube: Kube, caches: Caches) -> None:
        super().__init__(kube)
        self._claims = caches.of(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = caches.of(PERSISTENT_VOLUMES)
        self.watches: Sequence[Watch] = (
            Watch(PERSISTENT_VOLUMES, _claim_of),
            Watch(STORAGE_CLASSES, self._unbound),
        )

    def _unbound(self, _: Json) -> list[Key]:
        return [
            Key(c["metadata"]["namespace"], c["metadata"]["name"])
            for c in self._claims.list()
            if not c["spec"].get("volumeName")
        ]

    async def see(self, claim: Json, reader: Reader) -> ObservedClaim:
        spec, volumes = claim["spec"], list(self._volumes.list())
        class_name, named = spec.get("storageClassName") or "", spec.get("volumeName") or ""
        storage_class = await reader.find(STORAGE_CLASSES, class_name) if class_name else None
        if named and self._volumes.find(Key("", named)) is None:
            live = await reader.find(PERSISTENT_VOLUMES, named)
            volumes += [live] if live is not None else []
        capacity = (claim.get("status") or {}).get("capacity")
        return ObservedClaim(tuple(volumes), storage_class, bool(capacity))

    def plan(self, claim: Json, seen: ObservedClaim) -> WriteMove:
        return next_move(claim, seen)

    def describe(self, claim: Json, seen: ObservedClaim, move: WriteMove) -> Json | None:
        return describe_claim(claim, seen)

    def events(self, claim: Json, seen: ObservedClaim, move: WriteMove) -> Sequence[Note]:
        decision = decide(claim, seen)
        if isinstance(decision, ExternalProvisioning):
            text = provisioning_message(decision.provisioner)
            return (Note(ClaimReason.EXTERNAL_PROVISIONING, text),)
        if not isinstance(decision, Wait) or not decision.message:
            return ()
        if isinstance(decision, ClaimProblem):
            return (Note(decision.reason, decision.message, "Warning"),)
        return (Note(decision.reason, decision.message),)


class PersistentVolumeController(Reconciler[Json, Json | None, Done, Json]):
    """
    Sets the phase of PersistentVolumes; sees the claim that the claimRef names.

    A cached claim is trusted only if it is the one that is bound: ``Released`` lets the provisioner
    delete the data, so it is decided on a live read.
    """

    kind = PERSISTENT_VOLUMES
    watches: Sequence[Watch] = (Watch(PERSISTENT_VOLUME_CLAIMS, _volume_of),)

    def __init__(self, claims: Cache[Any]) -> None:
        self._claims = claims

    async def see(self, volume: Json, reader: Reader) -> Json | None:
        ref = volume["spec"].get("claimRef") or {}
        if not ref.get("uid"):
            return None
        cached: Json | None = self._claims.find(Key(ref["namespace"], ref["name"]))
        if cached is not None and cached["metadata"]["uid"] == ref["uid"]:
            return cached
        return await reader.find(PERSISTENT_VOLUME_CLAIMS, ref["name"], ref["namespace"])

    def plan(self, volume: Json, seen: Json | None) -> Done:
        return Done()

    async def act(self, move: Done) -> None:
        return None

    def describe(self, volume: Json, seen: Json | None, move: Done) -> Json:
        return {"phase": volume_phase(volume, seen)}
