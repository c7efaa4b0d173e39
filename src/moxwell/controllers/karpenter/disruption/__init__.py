"""
``karpenter.disruption``: deletes and replaces nodes that are empty, drifted or badly packed.

A decision about consolidation is checked again 15 seconds later. A command that is carried out is
recorded on the node claims that it deletes, so that a restart continues or undoes it. While
commands wait for their replacements, other nodes are decided about within the budgets.

| module | content |
|---|---|
| ``command_record`` | what is recorded of a command, and where |
| ``decide`` | the methods in Karpenter's order; whether a decision still holds |
| ``plan`` | the next move of a command in progress |
| ``blocked`` | why nodes and pools are not disrupted |
| ``reports`` | events and gauges |
| ``execution`` | carries out, ends and undoes commands |
| ``controller`` | the loop |
"""
