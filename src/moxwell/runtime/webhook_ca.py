"""
Keeps the webhook certificate in a Secret and its CA in the configurations that must trust it.

All replicas share one Secret; the first one creates it, and a renewal is bound to the resource
version. The CA is written as ``caBundle`` into our webhook configurations and the conversion
settings of our CRDs, and again within 30 seconds when an applied manifest removed it. A new CA is
added beside the old one and used only after the apiservers had time to load it.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.errors import Conflict, Invalid, MoxwellError
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, WriteConflict
from moxwell.pki import serving
from moxwell.pki.certificates import KeyPair
from moxwell.pki.serving import ServingCertificates

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
HEARD_SECONDS = 5.0  # apiservers load a changed bundle through a watch
EXCHANGE_SECONDS = 15.0  # grace period: a slow apiserver would reject our certificate
Json = dict[str, Any]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTargets:
    """The names of the objects that carry the CA bundle."""

    validating: tuple[str, ...] = ()
    mutating: tuple[str, ...] = ()
    crds: tuple[str, ...] = ()


class WebhookCA:
    """Keeps the certificate and the CA bundles up to date."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        *,
        namespace: str,
        secret: str,
        names: Sequence[str],
        trusting: WebhookTargets,
    ) -> None:
        self._kube, self._clock = kube, clock
        self._namespace, self._secret = namespace, secret
        self._names, self._trusting = tuple(names), trusting

    async def ensure(self) -> ServingCertificates:
        """The certificates to use now; renews and stores them when due."""
        for _ in range(4):
            secret = await self._kube.find(SECRETS, self._secret, self._namespace)
            kept = None if secret is None else read_secret(secret)
            wanted = serving.renew(kept, self._names, self._clock.now())
            if wanted is kept:
                return wanted
            try:
                await self._store(secret, wanted)
            except (AlreadyExists, WriteConflict):
                continue  # another replica was first: use its certificates
            log.info("webhook certificate made", names=list(self._names))
            return wanted
        raise Conflict(f"the Secret {self._namespace}/{self._secret} keeps changing")

    async def announce(self, bundle: bytes) -> bool:
        """
        Write the bundle wherever it is missing; returns whether it was missing anywhere.

        A failure for one object does not stop the others.
        """
        text = base64.b64encode(bundle).decode()
        targets = self._trusting
        wanted = [
            *((VALIDATING, name, webhook_patch) for name in targets.validating),
            *((MUTATING, name, webhook_patch) for name in targets.mutating),
            *((CRDS, name, crd_patch) for name in targets.crds),
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
        self, use: Callable[[KeyPair], None], announced: Callable[[], None] = lambda: None
    ) -> None:
        """
        Maintain both until cancelled; ``use`` gets each new serving certificate.

        ``announced`` is called once the apiservers have the CA bundle.
        """
        using: ServingCertificates | None = None
        while True:
            try:
                using = await self._turn(using, use, announced)
            except MoxwellError as error:
                log.warning("webhook certificate not kept", error=str(error), reason=error.reason)
                await self._clock.sleep(RETRY_SECONDS)
                continue
            await self._clock.sleep(CHECK_SECONDS)

    async def _turn(
        self,
        using: ServingCertificates | None,
        use: Callable[[KeyPair], None],
        announced: Callable[[], None],
    ) -> ServingCertificates:
        kept = await self.ensure()
        if using is None:  # start serving at once: our own lists may need the conversion webhook
            use(kept.serving)
        missing = await self.announce(kept.bundle)
        if using is None:
            if missing:
                await self._clock.sleep(HEARD_SECONDS)
            announced()
        if using is not None and kept.serving != using.serving:
            if using.ca.certificate in kept.bundle and kept.ca != using.ca:
                await self._clock.sleep(EXCHANGE_SECONDS)
            use(kept.serving)
            log.info("webhook certificate exchanged")
        return kept

    async def _store(self, old: Json | None, kept: ServingCertificates) -> None:
        secret = write_secret(self._secret, self._namespace, kept)
        if old is None:
            await self._kube.create(secret, SECRETS)
        else:
            await self._kube.replace({**old, "data": secret["data"]}, SECRETS)


def read_secret(secret: Json) -> ServingCertificates | None:
    """The certificates of a Secret; None if anything is missing or unreadable."""
    data = secret.get("data") or {}
    try:
        ca, ca_key, certificate, key, bundle = (
            base64.b64decode(data[name], validate=True)
            for name in ("ca.crt", "ca.key", "tls.crt", "tls.key", "bundle.crt")
        )
        kept = ServingCertificates(KeyPair(ca, ca_key), KeyPair(certificate, key), bundle)
        return kept if serving.is_usable(kept) else None
    except (KeyError, ValueError, Invalid):
        return None


def write_secret(name: str, namespace: str, kept: ServingCertificates) -> Json:
    """The Secret that holds these certificates."""
    data = {
        "ca.crt": kept.ca.certificate,
        "ca.key": kept.ca.key,
        "tls.crt": kept.serving.certificate,
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
    """JSON patch operations that set the bundle in every webhook that lacks it."""
    return [
        {"op": "add", "path": f"/webhooks/{n}/clientConfig/caBundle", "value": bundle}
        for n, hook in enumerate(configuration.get("webhooks") or ())
        if hook.get("clientConfig", {}).get("caBundle") != bundle
    ]


def crd_patch(crd: Json, bundle: str) -> list[Json]:
    """The same for a CRD with a conversion webhook; None for others."""
    conversion = crd.get("spec", {}).get("conversion") or {}
    config = (conversion.get("webhook") or {}).get("clientConfig")
    if conversion.get("strategy") != "Webhook" or config is None:
        return []
    if config.get("caBundle") == bundle:
        return []
    path = "/spec/conversion/webhook/clientConfig/caBundle"
    return [{"op": "add", "path": path, "value": bundle}]
