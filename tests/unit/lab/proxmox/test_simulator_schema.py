"""Every method of the API schema: parameters, permissions and refusals."""

from pathlib import Path
from typing import Any

import pytest

from moxwell.lab.proxmox.schema.catalog import MAJORS, catalog, template
from moxwell.lab.proxmox.schema.named_formats import PROPERTY_STRINGS, find_check
from moxwell.lab.proxmox.schema.parameters import build_param, perl_pattern
from moxwell.lab.proxmox.schema.permission_rules import refusal
from moxwell.lab.proxmox.schema_routes import route_table
from proxmox_schema import __main__ as generator
from proxmox_schema import tables
from support.simulator_session import SimulatorSession, run_session

SHARED = Path(__file__).parents[5] / "shared" / "pve"
AGAIN = "render it again: PYTHONPATH=tools python -m proxmox_schema.tables"


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the API schemas beside the clone")
def test_the_table_has_the_facts_of_the_schemas() -> None:
    files = [str(SHARED / "api-8.4.json"), str(SHARED / "api-9.1.json")]
    assert generator.TARGET.read_text() == generator.build(generator.read(files))


@pytest.mark.parametrize("major", MAJORS)
def test_every_method_of_the_schema_has_a_route(major: int) -> None:
    known = {(route.method, template(route.path)) for route in route_table(major).routes}
    assert {(method, template(path)) for method, path in catalog(major).all()} <= known


@pytest.mark.parametrize("major", MAJORS)
def test_named_formats_are_checked(major: int) -> None:
    named = catalog(major).named_formats()
    assert len(named) > 100
    assert [n for n in named if n not in PROPERTY_STRINGS and find_check(n) is None] == []


@pytest.mark.parametrize(
    "rule, text",
    [
        pytest.param(None, "user != root@pam", id="root only"),
        pytest.param({"user": "all"}, "", id="any user"),
        pytest.param({"check": ["perm", "/", ["Sys.Audit"]]}, "/, Sys.Audit", id="one privilege"),
        pytest.param({"check": ["perm", "/", ["A", "B"], "any", 1]}, "/, A|B", id="any of several"),
        pytest.param(
            {"check": ["and", ["perm", "/x/{id}", ["A", "B"]], ["perm", "/", ["C"]]]},
            "/x/{id}, A",
            id="the first of several rules",
        ),
        pytest.param({"check": ["or", ["perm", "/", ["A"]]]}, "", id="alternatives say nothing"),
    ],
)
def test_refusals(rule: dict[str, Any] | None, text: str) -> None:
    assert refusal(rule) == text


@pytest.mark.parametrize(
    "perl, python",
    [
        pytest.param("(?^:a|b)", "(?:a|b)", id="plain group"),
        pytest.param("(?^i:[a-z]+)", "(?i:[a-z]+)", id="ignore case"),
        pytest.param(None, None, id="none"),
    ],
)
def test_perl_patterns(perl: str | None, python: str | None) -> None:
    assert perl_pattern(perl) == python


def test_a_format_in_the_schema_is_a_property_string() -> None:
    param = build_param("x", {"format": {"a": {"type": "integer"}, "b": {"optional": 1}}})
    assert param.property_string is not None
    param.property_string("a=1,b=z", "x", 9)
    with pytest.raises(Exception, match=r"x\.a: property is missing"):
        param.property_string("b=z", "x", 9)


@pytest.mark.parametrize(
    "method, path, params, status, message",
    [
        pytest.param("POST", "/cluster/acme/plugins", {"id": "p1", "type": "dns"}, 403,
                     "Permission check failed (/, Sys.Modify)", id="refused also to root"),
        pytest.param("POST", "/cluster/acme/plugins", {}, 400,
                     "Parameter verification failed.", id="parameters come first"),
        pytest.param("GET", "/nodes/n1/nosuch", {}, 501,
                     "Method 'GET /nodes/n1/nosuch' not implemented", id="not in the schema"),
        pytest.param("GET", "/cluster/acme", {}, 200, "", id="indexes come from the schema"),
    ],
)  # fmt: skip
def test_methods_that_are_not_simulated(
    method: str, path: str, params: dict[str, str], status: int, message: str
) -> None:
    async def body(sim: SimulatorSession) -> None:
        answer = await sim.request(method, path, params)
        assert (answer.status, answer.message) == (status, message)

    run_session(body)


def test_the_reference_pages_are_up_to_date() -> None:
    assert tables.SIMULATED.read_text() == tables.render_simulator(), AGAIN
    assert tables.REQUESTS.read_text() == tables.render_requests(), AGAIN


def test_every_request_of_the_client_is_simulated() -> None:
    for method, path in tables.client_requests():
        routes = [r for major in MAJORS for r in route_table(major).routes]
        found = [r for r in routes if r.method == method and r.path == path]
        assert found, (method, path)
        assert all(route.simulated for route in found), (method, path)
