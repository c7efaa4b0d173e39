"""
Replacements of Kubernetes, Cluster API and Kamaji for lab and standalone mode.

``apiserver`` serves the Kubernetes API from SQLite, ``clusterapi``, ``controllermanager`` and
``scheduler`` do the part of Cluster API, Kamaji, kube-controller-manager and kube-scheduler that
users of Moxwell see, and ``controlplanes`` hosts the control planes of tenant clusters. Each
controller does less than the upstream one and says so in its docstring. Operator mode imports
nothing from here.
"""
