"""
The MachineDeployment loop of Cluster API, in small: from one MachineSet to the next.

Which set is the current one is decided by the meaning of the template, not its text.
"""
