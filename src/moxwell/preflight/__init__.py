"""
Checks whether a cluster can be made: facts are read from Proxmox, pure checks judge them.

``facts.read_facts`` reads a region and changes nothing, ``checks.check_region`` returns for each
check pass, warn or fail with what to do, and ``addresses.check_addresses`` judges address ranges.
"""
