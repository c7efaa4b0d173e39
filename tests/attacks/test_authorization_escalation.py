"""Attacks on RBAC: an account grants itself permissions that it does not hold."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moxwell.api.requests import UserInfo
from moxwell.embedded.apiserver.auth.policy_rules import (
    AuthorizationAttributes,
    rule_allows,
    uncovered,
)
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.testing.api_calls import MERGE, ApiClient
from moxwell.testing.loop import LoopClock, run_virtual

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
ROLES, BINDINGS = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
MALLORY = UserInfo(name="mallory", groups=("system:authenticated",))
WRITES_RBAC = {
    "apiGroups": [GROUP],
    "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
    "verbs": ["get", "create", "update", "patch"],
}
EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
SUBJECT = {"kind": "User", "apiGroup": GROUP, "name": "mallory"}


def role(name: str, *rules: Any, **more: Any) -> dict[str, Any]:
    head = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole"}
    return {
        **head,
        "metadata": {"name": name, **more.pop("meta", {})},
        "rules": list(rules),
        **more,
    }


def binding(name: str, to: str, kind: str = "ClusterRole") -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": to},
        "subjects": [SUBJECT],
    }


Story = Callable[[ApiClient, ApiClient], Awaitable[None]]


def attack(story: Story) -> None:
    """Play a story in which mallory writes roles and bindings and holds nothing else."""

    async def main() -> None:
        async with EmbeddedApiServer(clock=LoopClock()) as server:
            admin, mallory = ApiClient(server), ApiClient(server, MALLORY)
            await admin("POST", ROLES, role("writer", WRITES_RBAC))
            await admin("POST", BINDINGS, binding("writer", "writer"))
            await story(admin, mallory)
            assert (await mallory("GET", "/api/v1/secrets")).status == 403

    run_virtual(main())


def test_an_aggregation_rule_does_not_collect_the_rules_of_others() -> None:
    selector = {"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
    rule = {"clusterRoleSelectors": [selector]}

    async def story(admin: ApiClient, mallory: ApiClient) -> None:
        made = await mallory("POST", ROLES, role("mine", aggregationRule=rule))
        assert made.status == 403
        assert "cluster-admin privileges" in made.object["message"]
        assert (await mallory("POST", ROLES, role("plain"))).status == 201
        change = {"aggregationRule": rule}
        changed = await mallory("PATCH", f"{ROLES}/plain", change, kind=MERGE)
        assert changed.status == 403

    attack(story)


def test_a_binding_to_a_role_that_does_not_exist_yet_is_refused() -> None:
    async def story(admin: ApiClient, mallory: ApiClient) -> None:
        assert (await mallory("POST", BINDINGS, binding("early", "later"))).status == 404
        await admin("POST", ROLES, role("later", EVERYTHING))

    attack(story)


def test_a_role_and_a_binding_need_the_rules_that_they_grant() -> None:
    async def story(admin: ApiClient, mallory: ApiClient) -> None:
        assert (await mallory("POST", ROLES, role("all", EVERYTHING))).status == 403
        assert (await mallory("POST", BINDINGS, binding("all", "cluster-admin"))).status == 403

    attack(story)


def test_a_cycle_of_aggregation_rules_ends() -> None:
    def aggregates(name: str, other: str) -> dict[str, Any]:
        rule = {"clusterRoleSelectors": [{"matchLabels": {"in": other}}]}
        return role(name, aggregationRule=rule, meta={"labels": {"in": name}})

    async def story(admin: ApiClient, mallory: ApiClient) -> None:
        await admin("POST", ROLES, aggregates("a", "b"))
        await admin("POST", ROLES, aggregates("b", "a"))
        assert (await admin("POST", BINDINGS, binding("a", "a"))).status == 201

    attack(story)


@pytest.mark.parametrize(
    "headers",
    [
        {"impersonate-user": "kubernetes-admin", "impersonate-group": "system:masters"},
        {"impersonate-user": "system:serviceaccount:kube-system:default"},
        {"impersonate-user": "mallory", "impersonate-uid": "1"},
    ],
)
def test_impersonation_needs_the_right(headers: dict[str, str]) -> None:
    async def story(admin: ApiClient, mallory: ApiClient) -> None:
        answer = await mallory("GET", "/api/v1/secrets", extra=headers)
        assert answer.status == 403
        assert "cannot impersonate" in answer.object["message"]

    attack(story)


def test_a_group_of_an_impersonated_user_is_checked_too() -> None:
    rule = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}

    async def story(admin: ApiClient, mallory: ApiClient) -> None:
        await admin("POST", ROLES, role("impersonator", rule))
        await admin("POST", BINDINGS, binding("i", "impersonator"))
        group = {"impersonate-user": "someone", "impersonate-group": "a\nsystem:masters"}
        assert (await mallory("GET", "/api/v1/secrets", extra=group)).status == 403

    attack(story)


# Property: covered rules allow nothing that the held rules do not

_GROUPS, _RESOURCES = ("", "apps", "*"), ("pods", "pods/log", "*/log", "secrets", "*")
_VERBS, _NAMES = ("get", "list", "*"), ((), ("a",), ("a", "b"))


def _rule(dice: random.Random) -> dict[str, Any]:
    made = {
        "apiGroups": dice.sample(_GROUPS, dice.randint(1, 2)),
        "resources": dice.sample(_RESOURCES, dice.randint(1, 2)),
        "verbs": dice.sample(_VERBS, dice.randint(1, 2)),
    }
    names = dice.choice(_NAMES)
    return {**made, "resourceNames": list(names)} if names else made


def _questions() -> list[AuthorizationAttributes]:
    return [
        AuthorizationAttributes(verb, group, resource, subresource, name)
        for verb in ("get", "list", "delete")
        for group in ("", "apps", "batch")
        for resource in ("pods", "secrets", "nodes")
        for subresource in ("", "log", "status")
        for name in ("", "a", "c")
    ]


@pytest.mark.parametrize("seed", range(20))
def test_covered_rules_allow_nothing_that_is_not_held(seed: int) -> None:
    dice, questions = random.Random(seed), _questions()
    granted = 0
    for _ in range(100):
        held = [_rule(dice) for _ in range(dice.randint(1, 4))]
        wanted = [_rule(dice)]
        if uncovered(held, wanted):
            continue
        granted += 1
        for question in questions:
            if rule_allows(wanted[0], question):
                assert any(rule_allows(rule, question) for rule in held), (held, wanted, question)
    assert granted
