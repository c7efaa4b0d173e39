"""Checks of the templates that machines are cloned from. Pure."""

import re
from collections.abc import Iterable, Iterator

from moxwell.errors import MoxwellError
from moxwell.preflight.facts import RegionFacts, TemplateFacts
from moxwell.preflight.outcome import RegionCheck, RegionNeeds, failed, passed, warned
from moxwell.pve import property_strings
from moxwell.scheduling.inventory_model import HostKey, Template
from moxwell.scheduling.templates import TemplateQuery, choose_templates, versions_of

_DISK = re.compile(r"(scsi|virtio|sata|ide)\d+")
BUILD = "make one: moxwell template build NAME ubuntu-24.04 --kubernetes {} --install"


def check_templates(facts: RegionFacts, needs: RegionNeeds) -> Iterable[RegionCheck]:
    """Whether there is a template for every node group, and whether guests of it can work."""
    if not facts.templates:
        wanted = next((q.kubernetes for q in needs.templates if q.kubernetes), "VERSION")
        return (failed("templates", "there is no template to clone", BUILD.format(wanted)),)
    known = [as_template(facts, template) for template in facts.templates]
    found = [check for query in needs.templates for check in _query(query, known)]
    for template in _used(facts, needs, known):
        found += _template(facts, needs, template)
    if not needs.templates and not any(versions_of(template) for template in known):
        do = "tag the templates with their version: qm set VMID --tags k8s-1.36.3"
        text = "no template has a Kubernetes version in its tags or name"
        found.append(warned("templates", text, do))
    return found or (passed("templates", f"{len(known)} templates can be cloned"),)


def as_template(facts: RegionFacts, template: TemplateFacts) -> Template:
    """A template as the scheduler sees it."""
    storages = frozenset(storage for storage, _ in _disks(template))
    shared = {row.storage for rows in facts.storages.values() for row in rows if row.shared}
    return Template(
        HostKey(facts.region, template.host),
        template.vmid,
        template.name,
        frozenset(tag for tag in template.tags if tag),
        storages,
        bool(storages) and storages <= shared,
    )


def _query(query: TemplateQuery, known: list[Template]) -> Iterator[RegionCheck]:
    try:
        choose_templates(query, known)
    except MoxwellError as error:
        do = BUILD.format(query.kubernetes or "VERSION") + ", or name another template"
        yield failed("templates", str(error), do)


def _used(facts: RegionFacts, needs: RegionNeeds, known: list[Template]) -> Iterator[TemplateFacts]:
    """The templates that are asked for, or all."""
    chosen: set[tuple[str, int]] = set()
    for query in needs.templates:
        try:
            chosen |= {(t.key.name, t.vmid) for t in choose_templates(query, known)}
        except MoxwellError:
            continue  # _query reports it
    for template in facts.templates:
        if not needs.templates or (template.host, template.vmid) in chosen:
            yield template


def _template(
    facts: RegionFacts, needs: RegionNeeds, template: TemplateFacts
) -> Iterator[RegionCheck]:
    who, config = f"template {template.vmid} {template.name}", template.config
    agent = config.get("agent", "0")
    if agent[:1] != "1" and "enabled=1" not in agent:
        do = f"qm set {template.vmid} --agent enabled=1, and install qemu-guest-agent in it"
        yield warned("templates", f"{who} has no guest agent", do)
    if not config.get("scsihw", "").startswith("virtio-scsi"):
        do = f"qm set {template.vmid} --scsihw virtio-scsi-single"
        yield warned("templates", f"{who}: volumes need the SCSI controller virtio-scsi", do)
    boot = re.search(r"order=([a-z]+\d+)", config.get("boot", ""))
    if boot is None or boot[1] not in config:
        do = f"qm set {template.vmid} --boot order=scsi0 (the disk with the system)"
        yield failed("templates", f"{who} boots from no disk", do)
    if needs.pool and template.pool != needs.pool:
        do = f"pvesh set /pools/{needs.pool} --vms {template.vmid}"
        yield failed("templates", f"{who} is not in the pool {needs.pool}", do)
    yield from _local(facts, template, who)


def _local(facts: RegionFacts, template: TemplateFacts, who: str) -> Iterator[RegionCheck]:
    """A template on local storage without copies: clones for other hosts are moved there."""
    others = [name for name, online in facts.hosts.items() if online and name != template.host]
    copies = {t.host for t in facts.templates if t.name == template.name}
    if as_template(facts, template).shared or not others or copies.issuperset(others):
        return
    do = "build it on every host, or on a shared storage: moxwell template build"
    yield warned("templates", f"{who} is on a local storage of {template.host} only", do)


def _disks(template: TemplateFacts) -> Iterator[tuple[str, str]]:
    for key, value in template.config.items():
        options = property_strings.parse(value) if _DISK.fullmatch(key) else {}
        if options and options.get("media") != "cdrom":
            yield value.partition(":")[0], value
