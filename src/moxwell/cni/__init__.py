"""
A simple network of pods for nodes in one network: ``moxwell cni`` on every node.

The CNI plugins bridge and host-local connect the pods of a node. This program writes their
configuration from the node's pod CIDR, and sets a route to the pod CIDR of each other node.
"""
