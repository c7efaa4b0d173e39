"""
Names in Proxmox that the tokens of tenants use; ``moxwell init --feature tenants`` makes them.

All tokens of tenants belong to one user without a password, the only member of a group on which
Moxwell may modify users: with ``User.Modify`` on all users it could make tokens of root.
"""

TENANT_GROUP = "moxwell-tenants"
TENANT_USER = "moxwell-tenants@pve"
TENANT_ROLE = "MoxwellTenant"


def tenant_privileges(major: int) -> tuple[str, ...]:
    """What a tenant may do with the guests of its pool: see, start, stop, open the console."""
    agent = "VM.Monitor" if major < 9 else "VM.GuestAgent.Audit"
    return tuple(sorted(("Pool.Audit", "VM.Audit", "VM.Console", "VM.PowerMgmt", agent)))
