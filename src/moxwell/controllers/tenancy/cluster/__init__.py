"""
A tenant's Kubernetes cluster: from one ``Kubernetes`` object to Cluster API's many.

``expand`` says which objects there should be; it is pure and decides all names. ``plan`` compares
them with what is there. ``controller`` writes one difference at a time. A template is named by a
hash of its meaning, so a change makes a new template and a rolling update, and the same meaning
never rolls anything; an old template stays until no MachineSet names it.
"""
