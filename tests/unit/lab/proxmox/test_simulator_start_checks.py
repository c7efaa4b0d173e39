"""What a start refuses while the command line of QEMU is built, in the order of Proxmox's code."""

import pytest

from support.simulator_session import SimulatorSession, run_session

VM = "/nodes/n1/qemu/100"
GPU = {"vendor": "0x10de", "device": "0x1eb8", "iommugroup": 4}
MTU_HINT = (
    " - adjust the MTU for the network device in the VM configuration, while ensuring that the"
    " bridge is configured as desired."
)
Case = tuple[str, dict[str, str], str]

CASES: list[Case] = [
    ("a newer machine", {"machine": "pc-i440fx-99.0"},
     "Installed QEMU version '10.1.2' is too old to run machine type 'pc-i440fx-99.0',"
     " please upgrade node 'n1'"),
    ("a newer revision", {"machine": "pc-q35-10.0+pve7"},
     "Installed qemu-server (max feature level for 10.0 is pve1) is too old to run machine type"
     " 'pc-q35-10.0+pve7', please upgrade node 'n1'"),
    ("an older machine", {"machine": "pc-q35-9.2+pve1"}, "OK"),
    ("firmware for 64 bits", {"bios": "ovmf", "cpu": "qemu32"},
     "OVMF (UEFI) BIOS is not supported on 32-bit CPU types"),
    ("many USB ports", {"usb5": "spice"},
     "using usb5 is only possible with machine type >= 7.1 and ostype l26 or windows > 7"),
    ("many USB ports on Linux", {"usb5": "spice", "ostype": "l26"}, "OK"),
    ("a USB mapping", {"usb0": "mapping=nosuch"}, "USB device mapping not found for 'nosuch'"),
    ("USB without a device", {"usb0": "usb3=1"}, "no usb id or path given"),
    ("PCI without a device", {"hostpci0": "pcie=1"}, "Either 'host' or 'mapping' must be set."),
    ("two names of a PCI device", {"hostpci0": "01:00,mapping=gpu"},
     "Cannot set both 'host' and 'mapping'."),
    ("PCIe on i440fx", {"hostpci0": "01:00.0,pcie=1"},
     "q35 machine model is not enabled at /usr/share/perl5/PVE/QemuServer/PCI.pm line 510."),
    ("PCIe on q35", {"hostpci0": "01:00.0,pcie=1", "machine": "q35"}, "OK"),
    ("a PCI device twice", {"hostpci0": "01:00.0", "hostpci1": "01:00.0"},
     "device '0000:01:00.0' assigned more than once"),
    ("no such PCI device", {"hostpci0": "09:00"}, "no PCI device found for '0000:09:00'"),
    ("a shared graphics card", {"hostpci0": "01:00,mdev=nvidia-1"},
     "cannot use mediated device with multifunction device"),
    ("graphics of the processor", {"hostpci0": "00:02.0,legacy-igd=1"},
     "legacy IGD assignment requires VGA mode to be 'none'"),
    ("graphics without ROM", {"hostpci0": "00:02.0,legacy-igd=1,rombar=0", "vga": "none"},
     "legacy IGD assignment requires rombar to be enabled"),
    ("graphics as first display", {"hostpci0": "00:02.0,legacy-igd=1,x-vga=1", "vga": "none"},
     "legacy IGD assignment is not compatible with x-vga"),
    ("another card as such", {"hostpci0": "01:00.0,legacy-igd=1", "vga": "none"},
     "legacy IGD assignment only works for devices on host bus 00:02.0"),
    ("such graphics twice",
     {"hostpci0": "00:02.0,legacy-igd=1", "hostpci1": "00:02.0,legacy-igd=1", "vga": "none"},
     "only one device can be assigned in legacy-igd mode"),
    ("VirGL", {"vga": "virtio-gl"},
     "missing libraries for 'virtio-gl' detected! Please install 'libgl1' and 'libegl1'"),
    ("encrypted memory", {"amd-sev": "std"}, "Your CPU does not support AMD SEV."),
    ("a small MTU", {"net0": "virtio,bridge=vmbr0,mtu=100"},
     "netdev net0: MTU '100' is smaller than the IP minimum MTU '576'"),
    ("a large MTU", {"net0": "virtio,bridge=vmbr0,mtu=9000"},
     f"netdev net0: MTU '9000' is bigger than the bridge MTU '1500'{MTU_HINT}"),
    ("the MTU of the bridge", {"net0": "virtio,bridge=vmbr0,mtu=1"}, "OK"),
    ("devices before vCPUs", {"hostpci0": "mapping=nosuch", "cores": "99"},
     "PCI device mapping not found for 'nosuch'"),
    ("vCPUs before displays", {"vga": "virtio-gl", "cores": "99"},
     "MAX 4 vcpus allowed per VM on this node"),
    ("machines before firmware", {"machine": "pc-i440fx-99.0", "bios": "ovmf", "cpu": "qemu32"},
     "Installed QEMU version '10.1.2' is too old to run machine type 'pc-i440fx-99.0',"
     " please upgrade node 'n1'"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_a_start_is_checked(case: Case) -> None:
    async def body(sim: SimulatorSession) -> None:
        sim.region.hosts["n1"].pci = {
            "0000:00:02.0": {"vendor": "0x8086", "device": "0x3e92"},
            "0000:01:00.0": GPU,
            "0000:01:00.1": GPU,
        }
        await sim.vm(**case[1])
        assert (await sim.run_task("POST", f"{VM}/status/start")).status == case[2]

    run_session(body, "9.2.11")


def test_version_8_does_not_explain_a_large_mtu() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(net0="virtio,bridge=vmbr0,mtu=9000")
        ended = await sim.run_task("POST", f"{VM}/status/start")
        assert ended.status == "netdev net0: MTU '9000' is bigger than the bridge MTU '1500'"

    run_session(body)


def test_a_device_that_is_added_to_a_running_vm_has_the_same_limits() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        await sim.run_task("POST", f"{VM}/status/start")
        answer = await sim.put(f"{VM}/config", net1="virtio,bridge=vmbr0,mtu=9000")
        text = "netdev net1: MTU '9000' is bigger than the bridge MTU '1500'"
        assert answer.errors == {"net1": f"hotplug problem - {text}{MTU_HINT}\n"}

    run_session(body, "9.2.11")


def test_a_mapping_with_several_devices_gives_a_free_one() -> None:
    async def body(sim: SimulatorSession) -> None:
        paths = ("0000:01:00.0", "0000:02:00.0")
        sim.region.hosts["n1"].pci = dict.fromkeys(paths, GPU)
        entries = [f"node=n1,path={path},id=10de:1eb8,iommugroup=4" for path in paths]
        assert (await sim.post("/cluster/mapping/pci", id="gpu", map=entries)).status == 200
        ended = []
        for vmid in (100, 101, 102):
            await sim.vm(vmid, hostpci0="mapping=gpu")
            ended.append((await sim.run_task("POST", f"/nodes/n1/qemu/{vmid}/status/start")).status)
        assert ended == ["OK", "OK", "could not find a free device for 'hostpci0'"]

    run_session(body, "9.2.11")
