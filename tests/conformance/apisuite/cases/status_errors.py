"""What the embedded API refuses on purpose; the genuine answer stands beside it, and is allowed."""

from apisuite.case import case, get, post, quiet
from apisuite.cases.bodies import CM, CRDS, PODS, crd_of, pod
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
    case(
        "impersonation by the admin",
        get(CM, headers={"Impersonate-User": "someone"}, only=STATUS),
        get(CM, headers={"Impersonate-Group": "some"}, only=STATUS),
    ),
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
    case("logs", quiet(post(PODS, pod("p"))), get(f"{PODS}/p/log", only=STATUS)),
    case("exec", quiet(post(PODS, pod("p"))), get(f"{PODS}/p/exec?command=ls", only=STATUS)),
)
