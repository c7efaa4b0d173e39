"""
``cloud.node``: a new node gets its identity, in one write; later its addresses are kept right.

Acts on nodes that carry the ``uninitialized`` taint, and never takes it off without identity. After
that it only refreshes addresses and, where asked to, the labels of a node whose guest has moved.
"""
