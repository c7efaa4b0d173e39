"""
First contact with a Proxmox cluster: certificate, role, user, token, pool and configuration.

``moxwell init`` uses it once with the login of an administrator, which is not stored.
"""
