"""
Which pods go to which nodes, and which node claims are created for the rest. Pure.

The decisions are those of Karpenter's provisioner (mode ``exact``), or cheaper ones under the
same constraints (mode ``optimise``). The input is a
:class:`~moxwell.scheduling.packing.cluster.ClusterSnapshot` (node pools with instance types, nodes,
bound pods, daemon sets) and pods, the result a
:class:`~moxwell.scheduling.packing.results.SchedulingResult`.

| module | content |
|---|---|
| ``pods``, ``nodes``, ``instance_types``, ``cluster`` | the input, as frozen values |
| ``pod_parsing``, ``pod_volumes``, ``pod_validation`` | from Kubernetes objects to pods |
| ``overlays``, ``buffers`` | NodeOverlays on instance types; CapacityBuffers as virtual pods |
| ``relaxation`` | the soft constraints of a pod, dropped one by one |
| ``type_table`` | instance types as bit sets: bit *i* is type *i* of a catalogue |
| ``topology_groups``, ``topology`` | spread, affinity and anti-affinity |
| ``rescheduling`` | which pods of a removed node need another, and what blocks their eviction |
| ``daemons``, ``templates`` | what a pool offers to a new node claim |
| ``bins``, ``claims``, ``existing`` | where a pod can be placed, and the state of each place |
| ``host_ledger`` | the host and NUMA nodes of each new claim, so that no host is promised twice |
| ``shape_traits``, ``pod_classes`` | what a shape decides once per solver, and once per run |
| ``claim_index``, ``existing_index`` | arrays that rule out places without looking at each |
| ``claim_order``, ``go_sort`` | the order of new node claims, as Go's sort leaves it |
| ``solver``, ``run`` | the loop over pods |
| ``optimise`` | packing that follows the price |
| ``lower_bound`` | what new nodes cost at least, by HiGHS (optional) |
| ``explain`` | a decision in one sentence and in full |
| ``results``, ``failures`` | the answer, with reasons as values; texts are built on demand |
"""
