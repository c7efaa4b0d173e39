"""
Which nodes are deleted or replaced, and by what. Pure: no I/O, no clock.

The decisions are those of Karpenter's disruption controller. The input is a
:class:`~moxwell.scheduling.disruption.cluster_state.DisruptionSnapshot`, the result a
:class:`~moxwell.scheduling.disruption.commands.DisruptionCommand`.

| module | content |
|---|---|
| ``cluster_state`` | the input, as frozen values |
| ``cron``, ``budgets`` | how many nodes of a pool may be disrupted for a reason at a moment |
| ``costs``, ``candidates`` | which nodes may be disrupted, their price and the cost |
| ``simulation`` | where pods go if nodes are removed |
| ``replacements``, ``commands`` | what may replace nodes, and what that saves |
| ``balanced`` | the score of the Balanced policy |
| ``consolidation`` | emptiness, multi-node and single-node consolidation |
| ``drift`` | drift, also of static pools, and expiration |
| ``search`` | consolidation of many nodes into several, with what it would save |
| ``methods`` | all of them on one snapshot |
| ``validation`` | whether a command still holds in a newer snapshot |
"""
