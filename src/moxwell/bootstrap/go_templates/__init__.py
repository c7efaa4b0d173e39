"""
Go's text/template in Python, for the user data that node classes take from Secrets. Pure.

The language, its built-in functions and its printing follow Go 1.26; ``functions`` are those of
karpenter-provider-proxmox. Templates come from tenants, so the work and the size of the output are
limited.
"""
