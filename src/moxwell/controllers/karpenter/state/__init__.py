"""
The state of a scaled cluster as the decisions see it.

| module | content |
|---|---|
| ``objects`` | the caches of the scaled cluster, and their content at one moment |
| ``pods``, ``nodes``, ``pools`` | from objects to the values of ``scheduling/``; pure |
| ``intentions`` | for which pods a node claim was created |
| ``nominations`` | on which nodes pods are expected soon |
| ``snapshots`` | both inputs of ``scheduling/``, for provisioning and for disruption |
"""
