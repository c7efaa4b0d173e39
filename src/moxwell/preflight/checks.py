"""Checks whether machines could be made in a region, each with what to do about a failure. Pure."""

from collections.abc import Iterable

from moxwell.preflight import access_checks as access
from moxwell.preflight.capacity_checks import check_capacity, check_ha, check_vmids
from moxwell.preflight.facts import RegionFacts
from moxwell.preflight.network_checks import check_networks
from moxwell.preflight.outcome import CheckLevel, RegionCheck, RegionNeeds, failed, passed, warned
from moxwell.preflight.storage_checks import check_storages
from moxwell.preflight.template_checks import check_templates

MIN_MAJOR, MAX_MAJOR = 8, 9
SKEW_WARN_SECONDS, SKEW_FAIL_SECONDS = 5.0, 60.0
SLOW_SECONDS = 2.0


def check_region(facts: RegionFacts, needs: RegionNeeds) -> tuple[RegionCheck, ...]:
    """All checks of a region, the most basic first."""
    if facts.error is not None:
        return access.unreadable(facts, facts.error, needs)
    found = [
        *_connection(facts),
        *_release(facts),
        *access.check_privileges(facts, needs),
        *_quorum(facts),
        *_clocks(facts),
        *check_storages(facts, needs),
        *check_networks(facts, needs),
        *check_templates(facts, needs),
        *check_vmids(facts, needs),
        *check_capacity(facts, needs),
        *check_ha(facts, needs),
    ]
    return tuple(found)


def problems(checks: Iterable[RegionCheck]) -> tuple[RegionCheck, ...]:
    """The checks that did not pass, failures first."""
    rest = [check for check in checks if check.level is not CheckLevel.PASS]
    return tuple(sorted(rest, key=lambda check: check.level is not CheckLevel.FAIL))


def _connection(facts: RegionFacts) -> Iterable[RegionCheck]:
    yield passed("reachability", f"answers at {facts.urls[0]}")
    if facts.latency > SLOW_SECONDS:
        do = "check the network to the host and its load"
        yield warned("latency", f"a request takes {facts.latency:.1f} s", do)
    if facts.insecure or facts.urls[0].startswith("http://"):
        do = "set fingerprint, or ca_file, and remove insecure"
        yield warned("tls", "the certificate is not verified", do)
    else:
        yield passed("tls", "the certificate is " + ("pinned" if facts.pinned else "verified"))
    if len(facts.hosts) > 1 and len(facts.urls) == 1:
        do = "list the URLs of several hosts: urls: [https://…, https://…]"
        yield warned("urls", "only one host is configured; if it fails, the region is lost", do)
    for url in facts.silent_urls:
        yield warned("urls", f"{url} does not answer", "start the host, or remove the URL")
    if facts.user.startswith("root@pam"):
        do = "use a user of its own with least privileges: `moxwell init`"
        yield warned("user", "root@pam is used", do)


def _release(facts: RegionFacts) -> Iterable[RegionCheck]:
    if facts.major < MIN_MAJOR:
        yield failed("version", f"Proxmox VE {facts.version} is too old", "upgrade to 8 or newer")
    elif facts.major > MAX_MAJOR:
        yield warned(
            "version", f"Proxmox VE {facts.version} is newer than what was tried", "try it first"
        )
    else:
        yield passed("version", f"Proxmox VE {facts.version}")


def _quorum(facts: RegionFacts) -> Iterable[RegionCheck]:
    if facts.quorate is False:
        yield failed("quorum", "the cluster has no quorum and refuses changes", "start more hosts")
    offline = [name for name, online in sorted(facts.hosts.items()) if not online]
    if offline:
        do = "start them; machines there are kept"
        yield warned("hosts", f"hosts that do not answer: {', '.join(offline)}", do)
    elif facts.quorate is not False:
        yield passed("quorum", f"{len(facts.hosts)} hosts answer")


def _clocks(facts: RegionFacts) -> Iterable[RegionCheck]:
    worst = max(facts.skews.items(), key=lambda item: abs(item[1]), default=("", 0.0))
    text = f"the clock of {worst[0]} differs by {abs(worst[1]):.0f} s"
    do = "set up time synchronization (chrony) on the hosts and here"
    if abs(worst[1]) > SKEW_FAIL_SECONDS:
        yield failed("clock", text, do)
    elif abs(worst[1]) > SKEW_WARN_SECONDS:
        yield warned("clock", text, do)
    else:
        yield passed("clock", "the clocks agree")
