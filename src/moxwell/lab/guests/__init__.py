"""
What lives inside simulated guests.

A guest that starts gets what real hardware would give it: its configuration and the bytes of its
media. ``seed`` reads the ISO and the cloud-init or Ignition data on it with a parser of its own,
``join`` does what kubeadm would with it, ``kubelet`` is the node that results, ``agent`` answers
the QEMU guest agent. ``guests`` holds them all and is the plug that :mod:`moxwell.lab.proxmox` calls.
Nothing
here knows who wrote the data: wrong data keeps a guest out of its cluster, as in life.
"""
