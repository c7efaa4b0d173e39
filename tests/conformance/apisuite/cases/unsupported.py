"""Requests that the embedded API server rejects by design; the difference is accepted."""

from apisuite.case import case, get, post, status_only
from apisuite.cases.bodies import CRDS, PODS, crd_of, pod
from apisuite.cases.crds import version

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
HOOK = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "hook-$u"},
    "webhooks": [],
}
CONVERSION = {
    "strategy": "Webhook",
    "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/convert"},
    },
}
STATUS = ("code", "reason")

CASES = (
    case("a webhook of others", post(HOOKS, HOOK, only=STATUS)),
    case(
        "conversion by a webhook",
        post(
            CRDS,
            crd_of(
                "widgets",
                "Widget",
                [version("v1", storage=True), version("v2")],
                conversion=CONVERSION,
            ),
            only=STATUS,
        ),
    ),
    case("aggregation", get(SERVICES, only=STATUS)),
    case("logs", status_only(post(PODS, pod("p"))), get(f"{PODS}/p/log", only=STATUS)),
    case("exec", status_only(post(PODS, pod("p"))), get(f"{PODS}/p/exec?command=ls", only=STATUS)),
)
