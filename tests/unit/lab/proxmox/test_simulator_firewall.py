"""Firewall rules, IP sets and security groups."""

from typing import Any

import pytest

from support.simulator_cluster import SimulatedCluster, run_scenario

BASE = {"type": "in", "action": "ACCEPT"}
VM = "/nodes/n1/qemu/100/firewall/rules"
CLUSTER = "/cluster/firewall/rules"
GROUP = "/cluster/firewall/groups/web"


@pytest.mark.parametrize(
    "path, params, errors",
    [
        pytest.param(VM, {"dport": "80"},
                     {"proto": "missing property - 'dport' requires this property"},
                     id="a port needs a protocol"),
        pytest.param(VM, {"dport": "80", "proto": "gre"},
                     {"dport": "protocol 'gre' does not support ports"}, id="that has ports"),
        pytest.param(VM, {"dport": "90:80", "proto": "tcp"},
                     {"dport": "invalid format - backwards range '90:80' not allowed, "
                               "did you mean '80:90'?\n"}, id="ranges go upwards"),
        pytest.param(VM, {"dport": "1,,2", "proto": "tcp"},
                     {"dport": "invalid format - extraneous commas in list\n"}, id="empty items"),
        pytest.param(VM, {"dport": ",".join("1" * 16), "proto": "tcp"},
                     {"dport": "invalid format - too many entries in port list (> 15 numbers)\n"},
                     id="too many ports"),
        pytest.param(VM, {"icmp-type": "echo-request"},
                     {"proto": "missing property - 'icmp-type' requires this property"},
                     id="an icmp type needs icmp"),
        pytest.param(VM, {"icmp-type": "no-route", "proto": "icmp"},
                     {"icmp-type": "invalid icmp-type 'no-route' for proto 'icmp'"},
                     id="and one of its own"),
        pytest.param(VM, {"source": "10.0.0.1,fe80::1"},
                     {"source": "invalid format - detected mixed ipv4/ipv6 addresses in address "
                                "list '10.0.0.1,fe80::1'\n"}, id="mixed addresses in a list"),
        pytest.param(VM, {"source": "10.0.0.1", "dest": "fe80::1"},
                     {"dest": "detected mixed ipv4/ipv6 addresses in rule"},
                     id="mixed addresses in a rule"),
        pytest.param(VM, {"source": "nobody"}, {"source": "no such alias 'nobody'"},
                     id="an alias that is not there"),
        pytest.param(VM, {"macro": "SSH", "proto": "tcp", "dport": "2222"},
                     {"dport": "parameter 'dport' already define in macro (value = '22')"},
                     id="a macro has its own port"),
        pytest.param(VM, {"type": "forward"},
                     {"type": "invalid rule type 'forward' for rule_env 'vm'"},
                     id="guests do not forward"),
        pytest.param(CLUSTER, {"type": "forward", "action": "REJECT"},
                     {"action": "cannot define REJECT rules on forward chain"},
                     id="forwarding is not rejected"),
        pytest.param(GROUP, {"iface": "net0"},
                     {"type": "parameter -i not allowed for this rule type"},
                     id="groups know no interface"),
    ],
)  # fmt: skip
def test_rejected_rules(path: str, params: dict[str, Any], errors: dict[str, str]) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await sim.request("POST", "/cluster/firewall/groups", group="web")
        answer = await sim.send("POST", path, **{**BASE, **params})
        assert (answer.status, answer.json()["errors"]) == (400, errors)

    run_scenario(scenario)


@pytest.mark.parametrize(
    "params, kept",
    [
        pytest.param({"macro": "ssh"}, {"macro": "SSH"}, id="macros get their proper name"),
        pytest.param({"proto": "icmpv6"}, {"proto": "icmpv6", "ipversion": 6},
                     id="icmpv6 says the version"),
        pytest.param({"source": "10.0.0.0/8", "comment": ""},
                     {"source": "10.0.0.0/8", "ipversion": 4}, id="empty values are left out"),
        pytest.param({"source": "web"}, {"source": "web", "ipversion": 4},
                     id="an alias says its version"),
    ],
)  # fmt: skip
def test_accepted_rules(params: dict[str, Any], kept: dict[str, Any]) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await sim.request("POST", "/cluster/firewall/aliases", name="Web", cidr="192.0.2.0/24")
        await sim.request("POST", CLUSTER, **{**BASE, **params})
        (rule,) = await sim.request("GET", CLUSTER)
        del rule["digest"]
        assert rule == {**BASE, "enable": 0, "pos": 0, **kept}

    run_scenario(scenario)


def test_new_rules_are_inserted_first_and_can_be_moved() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        for name in ("a", "b", "c"):
            await sim.request("POST", CLUSTER, **BASE, comment=name)
        await sim.request("PUT", f"{CLUSTER}/0", moveto=3)
        listed = await sim.request("GET", CLUSTER)
        assert [rule["comment"] for rule in listed] == ["b", "a", "c"]
        await sim.request("PUT", f"{CLUSTER}/0", delete="comment")
        assert "comment" not in (await sim.request("GET", CLUSTER))[0]
        answer = await sim.send("PUT", f"{CLUSTER}/0", delete="action")
        text = "unable to delete required property 'action'"
        assert answer.json()["errors"] == {"delete": text}

    run_scenario(scenario)


def test_a_digest_detects_concurrent_changes() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await sim.request("POST", CLUSTER, **BASE)
        digest = (await sim.request("GET", CLUSTER))[0]["digest"]
        await sim.request("PUT", f"{CLUSTER}/0", enable=1, digest=digest)
        answer = await sim.send("PUT", f"{CLUSTER}/0", enable=0, digest=digest)
        assert answer.reason.startswith("detected modified configuration")

    run_scenario(scenario)


@pytest.mark.parametrize(
    "cidr, answer",
    [
        pytest.param("10.1.2.3/24", None, id="host bits are cut off"),
        pytest.param("10.1.2.0/24", "address '10.1.2.0/24' already exists", id="a network twice"),
        pytest.param("0.0.0.0/0", "a zero prefix is not allowed in ipset entries", id="everything"),
        pytest.param("bogus.x", "invalid format - value does not look like a valid IP address or "
                     "CIDR network\n", id="no address"),
    ],
)  # fmt: skip
def test_entries_of_a_set(cidr: str, answer: str | None) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        path = "/cluster/firewall/ipset/hosts"
        await sim.request("POST", "/cluster/firewall/ipset", name="hosts")
        if answer and "exists" in answer:
            await sim.request("POST", path, cidr=cidr)
        got = await sim.send("POST", path, cidr=cidr)
        if answer is None:
            assert [row["cidr"] for row in await sim.request("GET", path)] == ["10.1.2.0/24"]
        else:
            assert got.json()["errors"] == {"cidr": answer}

    run_scenario(scenario)


def test_an_ipset_entry_in_a_path_may_contain_a_slash() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        path = "/cluster/firewall/ipset/hosts"
        await sim.request("POST", "/cluster/firewall/ipset", name="hosts")
        await sim.request("POST", path, cidr="10.1.0.0/16", comment="x")
        assert (await sim.request("GET", f"{path}/10.1.0.0/16"))["comment"] == "x"
        await sim.request("DELETE", f"{path}/10.1.0.0/16")
        assert await sim.request("GET", path) == []

    run_scenario(scenario)


def test_a_rule_shows_that_its_alias_is_gone() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await sim.request("POST", "/cluster/firewall/aliases", name="Web", cidr="192.0.2.7/32")
        alias = await sim.request("GET", "/cluster/firewall/aliases/web")
        assert alias == {"name": "Web", "cidr": "192.0.2.7", "ipversion": 4}
        await sim.request("POST", CLUSTER, **BASE, source="dc/web", enable="3", comment=" note ")
        rule = (await sim.request("GET", CLUSTER))[0]
        assert (rule["enable"], rule["comment"], rule["ipversion"]) == (1, "note", 4)
        await sim.request("DELETE", "/cluster/firewall/aliases/web")
        for row in (await sim.request("GET", CLUSTER))[0], await sim.request("GET", f"{CLUSTER}/0"):
            assert row["errors"] == {"source": "no such alias 'dc/web'"}
            assert "ipversion" not in row

    run_scenario(scenario)


@pytest.mark.parametrize(
    "method, path, form, status",
    [
        pytest.param("POST", CLUSTER, BASE, 200, id="a new rule needs no digest"),
        pytest.param("POST", "/cluster/firewall/ipset", {"name": "seta"}, 200, id="nor a new set"),
        pytest.param("POST", "/cluster/firewall/groups", {"group": "more"}, 200, id="nor a group"),
        pytest.param("PUT", f"{CLUSTER}/9", {"enable": "1"}, 500, id="a missing rule"),
        pytest.param("PUT", "/cluster/firewall/aliases/none", {"cidr": "192.0.2.1"}, 500,
                     id="a missing alias"),
    ],
)  # fmt: skip
def test_where_a_wrong_digest_counts(
    method: str, path: str, form: dict[str, Any], status: int
) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        answer = await sim.send(method, path, **form, digest="0" * 40)
        assert answer.status == status
        if status != 200:
            assert answer.reason.startswith("detected modified configuration")

    run_scenario(scenario)


def test_rules_follow_a_renamed_group() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await sim.request("POST", "/cluster/firewall/groups", group="web")
        await sim.request("POST", CLUSTER, type="group", action="web")
        await sim.request("POST", "/cluster/firewall/groups", group="www", rename="web")
        assert (await sim.request("GET", CLUSTER))[0]["action"] == "www"

    run_scenario(scenario)
