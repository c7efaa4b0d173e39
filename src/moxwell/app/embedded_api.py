"""
Opens an embedded apiserver with Moxwell's CRDs, conversions and admission rules.

Conversions and admission call the same pure functions as the webhooks of operator mode.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from moxwell.api import registry
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Resource
from moxwell.api.requests import UserInfo
from moxwell.app import admission
from moxwell.clock import Clock
from moxwell.embedded.apiserver.audit.audit_log import open_audit
from moxwell.embedded.apiserver.auth.policy_rules import AuthorizationAttributes
from moxwell.embedded.apiserver.encryption.envelope import open_encryption
from moxwell.embedded.apiserver.hooks import AdmissionAttributes, Hooks
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.kube.client import Kube
from moxwell.pki.folder import CertificateAuthority

CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)


CLAIM = AuthorizationAttributes(
    verb=admission.CLAIM_VERB,
    group=ProxmoxMachine.resource.group,
    resource=ProxmoxMachine.resource.plural,
)
MayClaim = Callable[[UserInfo], bool]


class AdmissionRules:
    """The rules of an API server; ``validators`` are set once the regions are known."""

    def __init__(self) -> None:
        self.validators: admission.Validators | None = None

    def admit(self, review: AdmissionAttributes) -> Sequence[str]:
        """Raise if a write breaks a rule."""
        if not review.subresource:
            admission.refuse(
                review.group,
                review.kind,
                review.object,
                review.old,
                dry_run=review.dry_run,
                validators=self.validators,
            )
        return ()


def make_hooks(may_claim: MayClaim, rules: AdmissionRules | None = None) -> Hooks:
    """
    Conversions of every kind with several versions, and our admission rules.

    ``may_claim`` returns whether a user may write the claim of a ProxmoxMachine.
    """
    checked = rules or AdmissionRules()
    plurals = {(k.resource.group, k.resource.kind): k.resource for k in registry.KINDS}
    names = [plurals[f.group, f.kind].group_resource for f in registry.CONVERSIONS]

    def admit(review: AdmissionAttributes) -> Sequence[str]:
        if not review.subresource and not may_claim(review.user):
            admission.refuse_claim(review.group, review.kind, review.object, review.old)
        return checked.admit(review)

    return Hooks(admit=admit, converters=dict.fromkeys(names, admission.convert))


async def open_store(
    clock: Clock,
    path: Path | None = None,
    authority: CertificateAuthority | None = None,
    rules: AdmissionRules | None = None,
) -> EmbeddedApiServer:
    """
    Start an apiserver that serves our kinds; ``path=None`` keeps it in memory.

    The keys of encrypted objects are in the folder ``keys`` beside the database.
    """

    def may_claim(user: UserInfo) -> bool:
        return store.authorizer.is_allowed(user, CLAIM)

    store = EmbeddedApiServer(
        path=path,
        encryption=open_encryption(path.parent / "keys", clock.now()) if path else None,
        audit=open_audit(path.parent, clock) if path else None,
        clock=clock,
        hooks=make_hooks(may_claim, rules),
        root_ca=authority.certificate.decode() if authority else "",
        token_key=authority.token_key if authority else None,
    )
    await store.start()
    await install_crds(Kube(store))
    return store


async def install_crds(kube: Kube) -> None:
    """Apply every CRD; idempotent."""
    for crd in registry.make_crds(upstream=True):
        await kube.apply(crd, CRDS, force=True)
