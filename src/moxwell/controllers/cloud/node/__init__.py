"""
``cloud.node``: initializes new nodes in one write and keeps their addresses up to date.

It acts on nodes with the ``uninitialized`` taint and removes the taint together with setting
provider ID and labels. Later it refreshes addresses and, with ``force_update_labels``, the labels
of a node whose guest was migrated.
"""
