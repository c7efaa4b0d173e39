"""
``tenancy.storageclass``: one StorageClass in a tenant cluster per Proxmox storage of its regions.

An existing class is never changed, and a deleted one is not created again while this process runs,
because a person may have replaced it.
"""
