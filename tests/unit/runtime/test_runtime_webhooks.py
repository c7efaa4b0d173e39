"""Webhooks: reviews answered, certificates made, renewed and announced, served over TLS."""

import asyncio
import base64
import json
import ssl
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry

from moxwell.errors import Invalid
from moxwell.kube.client import Kube
from moxwell.pki import serving
from moxwell.pki.certificates import alt_names
from moxwell.runtime import http
from moxwell.runtime.metrics import Metrics
from moxwell.runtime.settings import Listen
from moxwell.runtime.webhook_ca import (
    CRDS,
    HEARD_SECONDS,
    RETRY_SECONDS,
    SECRETS,
    VALIDATING,
    WebhookCA,
    WebhookTargets,
    read_secret,
)
from moxwell.runtime.webhooks import Admission, Allow, Deny, Webhooks
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock, run_virtual

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("localhost", "moxwell-webhooks.moxwell-system.svc", "127.0.0.1")


def admit(asked: Admission) -> Allow | Deny:
    assert asked.object is not None
    size = asked.object["spec"]["size"]
    if size < 0:
        return Deny("size must not be negative")
    if size > 99:
        raise Invalid("size 100 is the largest there is")
    if asked.old is not None and asked.old["spec"]["size"] > size:
        return Allow(warnings=("shrinking loses data",))
    return Allow(({"op": "add", "path": "/spec/size", "value": size + 1},) if size == 0 else ())


def convert(obj: dict[str, Any], wanted: str) -> dict[str, Any]:
    if obj["kind"] != "Thing":
        raise Invalid(f"{obj['kind']} cannot be converted")
    return {**obj, "apiVersion": wanted}


HOOKS = Webhooks({"/validate-things": admit}, convert)


def ask(size: int, old: int | None = None) -> dict[str, Any]:
    request = {
        "uid": "u1",
        "kind": {"group": "g", "version": "v1", "kind": "Thing"},
        "operation": "CREATE" if old is None else "UPDATE",
        "namespace": "ns",
        "name": "one",
        "userInfo": {"username": "jane"},
        "object": {"spec": {"size": size}},
        "oldObject": None if old is None else {"spec": {"size": old}},
        "unknownField": 1,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer = HOOKS.answer("/validate-things", json.dumps(body).encode())
    assert answer is not None
    out: dict[str, Any] = json.loads(answer)
    assert (out["kind"], out["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    assert out["response"]["uid"] == "u1"
    response: dict[str, Any] = out["response"]
    return response


def test_an_admission_is_allowed_changed_warned_of_or_refused() -> None:
    assert ask(1) == {"uid": "u1", "allowed": True}
    changed = ask(0)
    assert changed["patchType"] == "JSONPatch"
    patch = json.loads(base64.b64decode(changed["patch"]))
    assert patch == [{"op": "add", "path": "/spec/size", "value": 1}]
    assert ask(1, old=2)["warnings"] == ["shrinking loses data"]
    assert ask(-1)["status"]["message"] == "size must not be negative"
    refused = ask(100)
    assert not refused["allowed"]
    assert refused["status"]["message"] == "size 100 is the largest there is"


@pytest.mark.parametrize(
    "kinds, status, count",
    [(["Thing", "Thing"], "Success", 2), (["Thing", "Other"], "Failure", 0)],
    ids=["all of them", "one bad one fails all"],
)
def test_objects_are_converted_together(kinds: list[str], status: str, count: int) -> None:
    objects = [{"apiVersion": "g/v1", "kind": kind} for kind in kinds]
    request = {"uid": "u1", "desiredAPIVersion": "g/v2", "objects": objects}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": request,
    }
    answer = HOOKS.answer("/convert", json.dumps(body).encode())
    assert answer is not None
    response = json.loads(answer)["response"]
    assert response["result"]["status"] == status
    assert [o["apiVersion"] for o in response["convertedObjects"]] == ["g/v2"] * count


def test_a_path_nobody_answers_is_none() -> None:
    assert HOOKS.answer("/other", b"{}") is None
    assert Webhooks({}).answer("/convert", b"{}") is None


def test_certificates_stay_until_something_is_due() -> None:
    kept = serving.renew(None, NAMES, NOW)
    assert serving.is_usable(kept)
    assert serving.renew(kept, NAMES, NOW + timedelta(days=200)) is kept
    assert "PRIVATE" not in repr(kept)


def test_a_serving_certificate_is_renewed_in_time_or_for_a_new_name() -> None:
    kept = serving.renew(None, NAMES, NOW)
    later = serving.renew(kept, NAMES, NOW + timedelta(days=250))
    assert later.ca == kept.ca
    assert later.serving != kept.serving
    renamed = serving.renew(kept, (*NAMES, "other"), NOW)
    assert {"other", "127.0.0.1"} <= alt_names(renamed.serving.certificate)


def test_a_new_authority_is_trusted_beside_the_old_one() -> None:
    kept = serving.renew(None, NAMES, NOW)
    later = serving.renew(kept, NAMES, NOW + timedelta(days=2500))
    bundle = x509.load_pem_x509_certificates(later.bundle)
    assert later.ca != kept.ca
    assert len(bundle) == 2
    assert kept.ca.certificate in later.bundle


def trust(fake: FakeKube) -> WebhookCA:
    trusting = WebhookTargets(validating=("moxwell",), crds=("things.g", "plain.g", "absent.g"))
    return WebhookCA(
        Kube(fake), LoopClock(), namespace="ns", secret="certs", names=NAMES, trusting=trusting
    )


def test_replicas_share_one_secret_and_announce_its_authority() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        kube = Kube(fake)
        hook = {"name": "w", "clientConfig": {"service": {"name": "s"}}}
        await kube.create({"metadata": {"name": "moxwell"}, "webhooks": [hook, hook]}, VALIDATING)
        conversion = {"strategy": "Webhook", "webhook": {"clientConfig": {}}}
        crd = {"metadata": {"name": "things.g"}, "spec": {"conversion": conversion}}
        await kube.create(crd, CRDS)
        await kube.create({"metadata": {"name": "plain.g"}, "spec": {}}, CRDS)
        a, b = trust(fake), trust(fake)
        first = await a.ensure()
        assert await b.ensure() == first
        await a.announce(first.bundle)
        await b.announce(first.bundle)
        bundle = base64.b64encode(first.bundle).decode()
        webhooks = await kube.get(VALIDATING, "moxwell")
        assert [w["clientConfig"]["caBundle"] for w in webhooks["webhooks"]] == [bundle] * 2
        found = await kube.get(CRDS, "things.g")
        assert found["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] == bundle
        assert sum(r.method == "PATCH" for r in fake.requests) == 2

    run_virtual(story())


async def converted(kube: Kube) -> None:
    """A kind whose conversion nobody trusts yet."""
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": {}}}
    await kube.create({"metadata": {"name": "things.g"}, "spec": {"conversion": conversion}}, CRDS)


async def heard_after(fake: FakeKube) -> float:
    """Seconds until a start says that it is trusted; the certificate is used at once."""
    loop, used, announced = asyncio.get_running_loop(), list[float](), asyncio.Event()
    start = loop.time()
    task = asyncio.create_task(trust(fake).run(lambda _: used.append(loop.time()), announced.set))
    await announced.wait()
    took = loop.time() - start
    task.cancel()
    assert used[0] == start
    return took


def test_a_start_is_trusted_only_when_apiservers_have_heard_of_it() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        await converted(Kube(fake))
        assert await heard_after(fake) == HEARD_SECONDS
        assert await heard_after(fake) == 0  # the second replica finds it written

    run_virtual(story())


def test_a_start_that_cannot_tell_anybody_is_not_trusted_until_it_can() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        await converted(Kube(fake))
        for _ in range(3):
            fake.fail(lambda r: r.method == "PATCH", 403)
        assert await heard_after(fake) == 3 * RETRY_SECONDS + HEARD_SECONDS

    run_virtual(story())


@pytest.mark.parametrize("broken", [{}, {"tls.crt": "bm8="}, {"tls.crt": "!"}])
def test_a_secret_that_cannot_be_read_is_made_anew(broken: dict[str, str]) -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        kube = Kube(fake)
        secret = {"metadata": {"name": "certs", "namespace": "ns"}, "data": broken}
        await kube.create(secret, SECRETS)
        kept = await trust(fake).ensure()
        assert read_secret(await kube.get(SECRETS, "certs", "ns")) == kept

    run_virtual(story())


def context(bundle: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=bundle.decode())


async def test_reviews_are_answered_over_tls_and_the_certificate_can_be_exchanged() -> None:
    now = datetime.now(UTC)
    first, second = (serving.renew(None, NAMES, now) for _ in range(2))
    tls, metrics = http.Tls(), Metrics(CollectorRegistry())
    tls.load(first.serving)
    async with (
        http.serving(http.webhook_app(HOOKS, metrics), Listen(), tls.context) as port,
        aiohttp.ClientSession() as session,
    ):
        url = f"https://localhost:{port}"
        async with session.post(f"{url}/other", ssl=context(first.bundle)) as response:
            assert response.status == 404
        async with session.post(
            f"{url}/validate-things", data=b"no review", ssl=context(first.bundle)
        ) as response:
            assert response.status == 400
        tls.load(second.serving)
        async with aiohttp.ClientSession() as fresh:
            async with fresh.post(f"{url}/other", ssl=context(second.bundle)) as response:
                assert response.status == 404
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await fresh.post(f"{url}/other", ssl=context(first.bundle))
    counted = partial(
        metrics.registry.get_sample_value, "controller_runtime_webhook_requests_total"
    )
    assert counted({"webhook": "/validate-things", "code": "400"}) == 1
    assert counted({"webhook": "<unknown>", "code": "404"}) == 2
