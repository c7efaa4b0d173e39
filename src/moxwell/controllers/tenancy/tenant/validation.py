"""Validates a ``Tenant``: its name, networks, bridge and quota. Pure."""

from collections.abc import Callable, Iterator

from moxwell.api.cozystack import Tenant
from moxwell.api.field_errors import FieldError
from moxwell.api.infra.address_ranges import parse_address_ranges
from moxwell.controllers.tenancy.tenant import firewall, isolation
from moxwell.controllers.tenancy.tenant.plan import namespace_of
from moxwell.errors import Invalid
from moxwell.scheduling import known_infrastructure as infrastructure
from moxwell.scheduling.known_infrastructure import KnownInfrastructure
from moxwell.scheduling.quota import quota_errors

MAX_NAMESPACE = 63


def tenant_errors(
    tenant: Tenant, old: Tenant | None, known: KnownInfrastructure
) -> tuple[FieldError, ...]:
    """Why a tenant cannot work; what the previous state has too is not reported."""
    before = set(_errors(old, known)) if old is not None else set()
    return tuple(error for error in _errors(tenant, known) if error not in before)


def _errors(tenant: Tenant, known: KnownInfrastructure) -> Iterator[FieldError]:
    yield from _name(tenant)
    yield from _network(tenant)
    yield from quota_errors("spec.resourceQuotas", tenant.spec.resource_quotas)
    regions = tuple(known.regions.values()) if known.complete else None
    path = "spec.network.bridge"
    missing = infrastructure.bridge_error(path, tenant.spec.network.bridge, regions)
    if missing is not None:
        yield missing


def _network(tenant: Tenant) -> Iterator[FieldError]:
    """Firewall rules, addresses and a VNet that Proxmox or the controller would refuse later."""
    ranges = tenant.spec.network.ranges
    checks: tuple[tuple[str, Callable[[], object]], ...] = (
        ("", lambda: firewall.rules_for(tenant)),
        ("", lambda: isolation.check_bridge(tenant)),
        ("spec.network.ranges", lambda: parse_address_ranges(ranges)),
        ("", lambda: isolation.subnet_of(tenant)),
    )
    for path, check in checks:
        try:
            check()
        except Invalid as error:
            yield FieldError(path, str(error))
            return


def _name(tenant: Tenant) -> Iterator[FieldError]:
    try:
        namespace = namespace_of(tenant)
    except Invalid as error:
        yield FieldError("metadata.name", str(error))
        return
    if len(namespace) > MAX_NAMESPACE:
        text = f"its namespace {namespace} would have {len(namespace)} characters"
        yield FieldError("metadata.name", f"{text}, and at most {MAX_NAMESPACE} are possible")
