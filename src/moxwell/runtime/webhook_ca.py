"""
The webhook certificate in the cluster: kept in a Secret, announced to those who must trust it.

All replicas share one Secret; whoever comes first makes it, and a renewal is bound to the version
it was computed from. The authority goes as ``caBundle`` into our webhook configurations and into
the conversion settings of our CRDs, and again within half a minute when somebody has removed it (a
manifest applied anew takes it out, and until it is back nobody converts). A new authority is
announced beside the old one, and used only after the apiservers had time to hear of it; see
:mod:`moxwell.runtime.webhook_certs`.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.errors import Conflict, MoxwellError
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, WriteConflict
from moxwell.runtime import webhook_certs
from moxwell.runtime.webhook_certs import Kept, Pair

SECRETS = Resource("", "v1", "secrets", "Secret")
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
VALIDATING = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    False,
)
MUTATING = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    False,
)
CHECK_SECONDS = 30.0
RETRY_SECONDS = 5.0
HEARD_SECONDS = 5.0  # apiservers learn of a changed bundle through a watch
EXCHANGE_SECONDS = 15.0  # here nobody waits for us, and one that is slow would refuse us
Json = dict[str, Any]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusting:
    """Who must be told of our authority, by name."""

    validating: tuple[str, ...] = ()
    mutating: tuple[str, ...] = ()
    crds: tuple[str, ...] = ()


class Trust:
    """Keeps the certificate and everybody's trust in it."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        *,
        namespace: str,
        secret: str,
        names: Sequence[str],
        trusting: Trusting,
    ) -> None:
        self._kube, self._clock = kube, clock
        self._namespace, self._secret = namespace, secret
        self._names, self._trusting = tuple(names), trusting

    async def ensure(self) -> Kept:
        """The certificates to use now, renewed and stored if that was due."""
        for _ in range(4):
            secret = await self._kube.find(SECRETS, self._secret, self._namespace)
            kept = None if secret is None else read_secret(secret)
            wanted = webhook_certs.renew(kept, self._names, self._clock.now())
            if wanted is kept:
                return wanted
            try:
                await self._store(secret, wanted)
            except (AlreadyExists, WriteConflict):
                continue  # another replica was first: use what it made
            log.info("webhook certificate made", names=list(self._names))
            return wanted
        raise Conflict(f"the Secret {self._namespace}/{self._secret} keeps changing")

    async def announce(self, bundle: bytes) -> bool:
        """
        Put the bundle wherever it is missing; whether it was missing anywhere.

        Who cannot be told keeps nobody from hearing.
        """
        text = base64.b64encode(bundle).decode()
        told = self._trusting
        wanted = [
            *((VALIDATING, name, webhook_patch) for name in told.validating),
            *((MUTATING, name, webhook_patch) for name in told.mutating),
            *((CRDS, name, crd_patch) for name in told.crds),
        ]
        failed: list[MoxwellError] = []
        missing = False
        for resource, name, patch in wanted:
            try:
                found = await self._kube.find(resource, name)
                if found is not None and (operations := patch(found, text)):
                    missing = True
                    await self._kube.json_patch(resource, name, operations)
            except MoxwellError as error:
                failed.append(error)
        if failed:
            raise failed[0]
        return missing

    async def run(
        self, use: Callable[[Pair], None], heard: Callable[[], None] = lambda: None
    ) -> None:
        """
        Look after both until cancelled; ``use`` gets each new serving certificate.

        ``heard`` is called once apiservers know whom to trust: until then they refuse us.
        """
        using: Kept | None = None
        while True:
            try:
                using = await self._turn(using, use, heard)
            except MoxwellError as error:
                log.warning("webhook certificate not kept", error=str(error), reason=error.reason)
                await self._clock.sleep(RETRY_SECONDS)
                continue
            await self._clock.sleep(CHECK_SECONDS)

    async def _turn(
        self, using: Kept | None, use: Callable[[Pair], None], heard: Callable[[], None]
    ) -> Kept:
        kept = await self.ensure()
        if using is None:  # nothing else could be served, and our own lists may need it
            use(kept.serving)
        missing = await self.announce(kept.bundle)
        if using is None:
            if missing:
                await self._clock.sleep(HEARD_SECONDS)
            heard()
        if using is not None and kept.serving != using.serving:
            if using.authority.cert in kept.bundle and kept.authority != using.authority:
                await self._clock.sleep(EXCHANGE_SECONDS)
            use(kept.serving)
            log.info("webhook certificate exchanged")
        return kept

    async def _store(self, old: Json | None, kept: Kept) -> None:
        secret = write_secret(self._secret, self._namespace, kept)
        if old is None:
            await self._kube.create(secret, SECRETS)
        else:
            await self._kube.replace({**old, "data": secret["data"]}, SECRETS)


def read_secret(secret: Json) -> Kept | None:
    """What a Secret holds; None if anything is missing or unreadable."""
    data = secret.get("data") or {}
    try:
        ca, key, cert, serving, bundle = (
            base64.b64decode(data[name], validate=True)
            for name in ("ca.crt", "ca.key", "tls.crt", "tls.key", "bundle.crt")
        )
        kept = Kept(Pair(ca, key), Pair(cert, serving), bundle)
        webhook_certs.check(kept)
    except (KeyError, ValueError):
        return None
    return kept


def write_secret(name: str, namespace: str, kept: Kept) -> Json:
    """The Secret that holds these certificates."""
    data = {
        "ca.crt": kept.authority.cert,
        "ca.key": kept.authority.key,
        "tls.crt": kept.serving.cert,
        "tls.key": kept.serving.key,
        "bundle.crt": kept.bundle,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }


def webhook_patch(configuration: Json, bundle: str) -> list[Json]:
    """JSON patch operations that put the bundle into every webhook that lacks it."""
    return [
        {"op": "add", "path": f"/webhooks/{n}/clientConfig/caBundle", "value": bundle}
        for n, hook in enumerate(configuration.get("webhooks") or ())
        if hook.get("clientConfig", {}).get("caBundle") != bundle
    ]


def crd_patch(crd: Json, bundle: str) -> list[Json]:
    """The same for a CRD that converts by webhook; others are left alone."""
    conversion = crd.get("spec", {}).get("conversion") or {}
    config = (conversion.get("webhook") or {}).get("clientConfig")
    if conversion.get("strategy") != "Webhook" or config is None:
        return []
    if config.get("caBundle") == bundle:
        return []
    path = "/spec/conversion/webhook/clientConfig/caBundle"
    return [{"op": "add", "path": path, "value": bundle}]
