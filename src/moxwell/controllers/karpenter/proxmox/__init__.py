"""
Machines of node claims on Proxmox: the provider of the autoscaler.

A node claim becomes a Machine of Cluster API with its ProxmoxMachine and bootstrap data, in the
management cluster. ``infra.machine`` makes the guest; nothing here writes to Proxmox. A node class
is input of the user of the scaled cluster: ``scope`` says what it may use.

| module or package | content |
|---|---|
| ``provider`` | what the autoscaler calls |
| ``scope`` | what the node classes of a cluster may use |
| ``node_class_check`` | which hosts and templates a node class selects, and its mistakes |
| ``host_states`` | what the hosts of a cluster have free |
| ``catalogue`` | instance types of a node class |
| ``launch_choice`` | which instance type and host a node claim gets |
| ``machine_objects`` | Machine, ProxmoxMachine and bootstrap configuration of a node claim |
| ``kubelet_settings`` | the kubelet's configuration of a node class |
| ``instance_state`` | where the machine of a node claim is in its life |
| ``instance_record`` | names and annotations by which a machine is found again |
| ``launches`` | what only this process knows: unseen capacity, failed launches, blocked offerings |
| ``node_bootstrap``, ``token_collector`` | bootstrap data from templates; join tokens |
| ``adopt`` | the controller that adopts guests of karpenter-provider-proxmox |
| ``warm_guests``, ``warm_pool`` | stopped guests for launches, and the controller that keeps them |
| ``node_class``, ``unmanaged_template`` | the controllers of these kinds |
"""
