"""The IPAM of the SDN zone in which a tenant's VNet is made."""

import pytest

from moxwell.api.cozystack import TenantVnet
from moxwell.controllers.tenancy.tenant.isolation import ObservedIsolation, refuse_zone
from moxwell.errors import Invalid
from moxwell.pve.endpoints.sdn import SdnZone


def seen(ipam: str) -> ObservedIsolation:
    zone = SdnZone(zone="tenants", type="simple", ipam=ipam, dhcp="dnsmasq")
    return ObservedIsolation(region="north", parent="", zones=(zone,))


@pytest.mark.parametrize("ipam", ["", "pve"])
def test_the_ipam_of_proxmox_is_used(ipam: str) -> None:
    refuse_zone(TenantVnet(zone="tenants", dhcp=True), seen(ipam))  # raises nothing


def test_another_ipam_is_refused_where_proxmox_assigns_addresses() -> None:
    with pytest.raises(
        Invalid, match=r"vnet\.dhcp: zone tenants .* uses the IPAM netbox"
    ) as caught:
        refuse_zone(TenantVnet(zone="tenants", dhcp=True), seen("netbox"))
    assert "set ipam pve in the zone" in str(caught.value)
    refuse_zone(TenantVnet(zone="tenants"), seen("netbox"))  # raises nothing
