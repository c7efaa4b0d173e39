"""
The MachineSet loop of Cluster API, in small: a number of equal Machines.

A Machine is written first, naming the objects it will need; these are made from their templates in
a later pass if they are missing. So a kill between the writes leaves nothing that is not found
again.
"""
