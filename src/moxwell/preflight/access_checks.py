"""Checks of the login and of the privileges of the token, path by path. Pure."""

from collections.abc import Iterable

from moxwell.errors import Denied, MoxwellError
from moxwell.preflight.facts import RegionFacts
from moxwell.preflight.outcome import CheckLevel, RegionCheck, RegionNeeds, failed, passed
from moxwell.pve import preflight
from moxwell.pve.errors import PermissionDenied
from moxwell.pve.preflight import Need

INIT = "run `moxwell init`, or `moxwell init --print` for the pveum commands"
MIN_MAJOR = 8


def unreadable(
    facts: RegionFacts, error: MoxwellError, needs: RegionNeeds
) -> tuple[RegionCheck, ...]:
    """The failure of a region that could not be read."""
    if isinstance(error, PermissionDenied):
        known = check_privileges(facts, needs) if facts.version else ()
        lacking = [check for check in known if check.level is CheckLevel.FAIL]
        return (*lacking, failed("privileges", f"the token may not read the region: {error}", INIT))
    if isinstance(error, Denied):
        do = "create the token again with `moxwell init`, or correct token_id and token_secret"
        return (failed("login", f"the login is refused: {error}", do),)
    do = "check url, fingerprint or ca_file in the configuration, and the network"
    return (failed("reachability", f"no answer: {error}", do),)


def check_privileges(facts: RegionFacts, needs: RegionNeeds) -> Iterable[RegionCheck]:
    """What the token lacks on each path; a token limited to a pool has its guests there."""
    if not facts.permissions and "!" in facts.user:
        do = f"give {facts.user} roles of its own (privilege separation): {INIT}"
        yield failed("privileges", "the token has no privileges at all", do)
        return
    by_path: dict[str, list[str]] = {}
    for need in missing(facts, needs):
        by_path.setdefault(_path(need, needs.pool), []).append(need.privilege)
    for path, privileges in sorted(by_path.items()):
        yield failed("privileges", f"the token lacks {' '.join(privileges)} on {path}", INIT)
    if not by_path:
        limited = f" in the pool {needs.pool}" if needs.pool else ""
        yield passed("privileges", f"the token has all privileges{limited}")


def missing(facts: RegionFacts, needs: RegionNeeds) -> tuple[Need, ...]:
    """The needs that the permissions do not meet."""
    wanted = preflight.needs(max(facts.major, MIN_MAJOR), needs.features)
    return tuple(
        need
        for need in wanted
        if need.privilege not in preflight.held(facts.permissions, _path(need, needs.pool))
        and need.privilege not in preflight.held(facts.permissions, need.path)
    )


def _path(need: Need, pool: str) -> str:
    return f"/pool/{pool}" if pool and need.path in ("/vms", "/pool") else need.path
