"""
Hosted control planes made of genuine programs: kube-apiserver, controller-manager, scheduler.

``process`` starts, finds and ends programs; ``supervisor`` keeps them running; ``etcd`` is the one
store that all tenants share, each behind its own prefix and certificate; ``files`` and ``flags``
are what a tenant's programs are started with; ``planes`` puts it together behind the seam that
the embedded planes have too. Nothing here is imported unless an instance asks for it.
"""
