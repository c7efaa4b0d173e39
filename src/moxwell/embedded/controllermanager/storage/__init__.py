"""
Volumes in small: what kube-controller-manager and the storage sidecars do for an embedded tenant.

``claims`` and ``volumes`` bind, ``ephemeral`` makes the claims that pods bring with them,
``provision`` makes disks and takes them away, ``attaching`` says what is to be attached where,
``attach`` does it, ``grow`` enlarges, ``room`` publishes free space, ``snapshots`` takes snapshots
where their CRDs are. Whoever stores is behind :mod:`.plugin`. Left out on purpose: forced detach by
time, group snapshots, VolumeAttributesClass.
"""
