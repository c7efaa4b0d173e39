"""
Simulated guest operating systems for the VMs of :mod:`moxwell.lab.proxmox`.

``guest_runner`` is the entry point that the simulator calls. A guest that boots reads its NoCloud
config drive (``config_drive``), interprets the user-data (``userdata``), runs a simulated kubeadm
(``join``, ``kubeadm_init``) and then a simulated kubelet (``kubelet``, ``pods``, ``volumes``);
``agent`` answers QEMU guest agent commands. The parsers are independent of the code that writes the
bootstrap data, so invalid data keeps a guest out of its cluster.
"""
