"""
The MachineHealthCheck loop of Cluster API, in small: broken machines are given up.

What "broken" means is in the check; that too many broken ones mean something else is, too. A
Machine that was given up is deleted here, and its set makes another.
"""
