"""Which addresses that pools gave to a machine are used by somebody else."""

from collections.abc import Mapping

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.controllers.infra.address_conflicts import AddressConflicts, AddressUse
from moxwell.controllers.infra.address_users import Network
from moxwell.controllers.infra.machine.observed import ObservedProxmoxMachine, TakenAddress
from moxwell.pve.regions import Region
from moxwell.runtime.key import Key
from moxwell.scheduling.guest_hardware import nic_value


class TakenAddressReader:
    """Compares the addresses of one machine at a time with those of others."""

    def __init__(self, conflicts: AddressConflicts) -> None:
        self._conflicts = conflicts

    async def find(
        self,
        obj: ProxmoxMachine,
        region: Region,
        seen: ObservedProxmoxMachine,
        template_nics: Mapping[str, str],
    ) -> tuple[TakenAddress, ...]:
        """The addresses that the machine must not use."""
        found = []
        networks = _networks(obj, seen, template_nics)
        for request in seen.addresses.requests:
            given = seen.addresses.by_claim.get(request.name)
            if given is None:
                continue
            network = networks[request.device]
            use = _use(obj, seen, request.name, given.address, network)
            user = await self._conflicts.find(use, region)
            if user is not None:
                place = (region.name, str(network))
                taken = (request.name, request.device, given.address, user.name)
                found.append(TakenAddress(*taken, *place))
        return tuple(found)


def _networks(
    obj: ProxmoxMachine, seen: ObservedProxmoxMachine, template_nics: Mapping[str, str]
) -> dict[str, Network]:
    """The network of each device."""
    return {
        d.name: Network.of_card(nic_value(obj.uid, d, seen.zone, template_nics.get(d.name, "")))
        for d in seen.devices
    }


def _use(
    obj: ProxmoxMachine, seen: ObservedProxmoxMachine, claim: str, address: str, network: Network
) -> AddressUse:
    cluster = seen.owners.cluster if seen.owners else None
    return AddressUse(
        Key(obj.namespace, claim),
        address,
        network,
        Key(cluster.namespace, cluster.name) if cluster else None,
        obj.spec.virtual_machine_id or 0,
        obj.name,
    )
