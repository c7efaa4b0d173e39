"""
A tenant: a namespace of its own, a quota, and rights that end at its border.

A tenant may read and write its clusters and read the kubeconfigs made for it. It may not list
Secrets: Proxmox credentials are never in its reach, wherever somebody puts them.
"""
