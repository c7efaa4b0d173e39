"""
The composition root: creates everything stateful and wires it together; decides nothing.

``standalone`` and ``operator`` are the two modes, ``daemon`` the process of the first. Only ``cli``
imports this package.
"""
