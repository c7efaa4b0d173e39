"""
The MachineSet controller of Cluster API.

A Machine is created first and names the objects it needs; a later pass creates those that are
missing from their templates. A crash between the writes leaves nothing that a pass does not find.
"""
