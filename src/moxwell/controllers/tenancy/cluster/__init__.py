"""
Tenant clusters: one ``Kubernetes`` object becomes the objects of Cluster API.

``desired_objects`` computes the objects, ``plan`` compares them with the existing ones and decides
which writes are due, ``controller`` executes them. A template is named by a hash of its content, so
a change of content creates a new template and a rolling update; an old template is kept until no
MachineSet refers to it.
"""
