"""
``tenancy.tenant``: a namespace with quota and RBAC roles, and a Proxmox firewall group per tenant.

A tenant may read and write its clusters and read their kubeconfigs. It may not list Secrets, so
Proxmox credentials in its namespace stay hidden from it.
"""
