"""
Connects Moxwell with a Proxmox cluster: certificate, role, user, token, pool, configuration.

``moxwell init`` uses it once with the login of an administrator, which is not stored.
"""
