"""The webhooks of operator mode: admission, conversion, and the certificate that they serve."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moxwell.api.infra import convert as infra
from moxwell.app import admission
from moxwell.clock import Clock
from moxwell.controllers.infra.known_regions import KnownRegions
from moxwell.runtime.manager import Runtime
from moxwell.runtime.webhook_ca import WebhookCA, WebhookTargets
from moxwell.runtime.webhooks import Admission, Allow, Deny, Webhooks

if TYPE_CHECKING:
    from moxwell.controllers.tenancy.cluster.defaults import Defaults


@dataclass(frozen=True, slots=True)
class Targets:
    """The Service of the webhooks, and the configuration that calls them."""

    namespace: str
    service: str
    validating: str


def serve(
    runtime: Runtime,
    clock: Clock,
    known: KnownRegions,
    defaults: "Callable[[], Defaults] | None",
    targets: Targets,
) -> None:
    """Serve the webhooks; tenants are validated if ``defaults`` are given."""
    validators = admission.Validators.make(runtime, known, clock, defaults=defaults)
    runtime.manager.serve_webhooks(webhooks(validators), _webhook_ca(runtime, clock, targets))


def webhooks(validators: admission.Validators | None = None) -> Webhooks:
    """Serve admission of our kinds at ``/validate`` and conversion at ``/convert``."""

    def admit(request: Admission) -> Allow | Deny:
        if not request.subresource:
            admission.refuse(
                request.group,
                request.kind,
                request.object,
                request.old,
                dry_run=request.dry_run,
                validators=validators,
            )
        return Allow()

    return Webhooks({"/validate": admit}, admission.convert)


def _webhook_ca(runtime: Runtime, clock: Clock, targets: Targets) -> WebhookCA:
    host = f"{targets.service}.{targets.namespace}.svc"
    converted = sorted(
        {k.resource.group_resource for k in infra.KINDS}
    )  # the others have one version
    return WebhookCA(
        runtime.plain,
        clock,
        namespace=targets.namespace,
        secret="moxwell-webhook-cert",
        names=(host, f"{host}.cluster.local", "127.0.0.1", "localhost"),
        trusting=WebhookTargets(validating=(targets.validating,), crds=tuple(converted)),
    )
