"""
The loopback addresses of a tenant's API servers when there are several. Pure.

All listen on the tenant's port, which the ``kubernetes`` Service names, so each needs an address of
its own that no API server of another tenant has. A tenant keeps its addresses, also with one
replica: the balancer stays, and only API servers come and go.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network

import msgspec

from moxwell.embedded.controlplanes.binaries.tenant_folder import TenantRecord

NETWORK = IPv4Network("127.64.0.0/10")
AT_LEAST = 3  # so that up to three replicas change neither certificate nor balancer


def with_replica_hosts(
    record: TenantRecord, replicas: int, others: Iterable[TenantRecord]
) -> TenantRecord:
    """The record with enough addresses; one API server that was always alone needs none."""
    wanted = max(replicas, AT_LEAST)
    if len(record.replica_hosts) >= replicas or (replicas <= 1 and not record.replica_hosts):
        return record
    used = {host for other in others for host in other.replica_hosts} | set(record.replica_hosts)
    hosts = list(record.replica_hosts)
    for address in map(str, map(IPv4Address, range(int(NETWORK[1]), int(NETWORK[-1])))):
        if len(hosts) >= wanted:
            break
        if address not in used:
            hosts.append(address)
    return msgspec.structs.replace(record, replica_hosts=tuple(hosts))
