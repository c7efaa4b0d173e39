"""
Kamaji's TenantControlPlane loop, in small: a control plane of a tenant, hosted beside us.

What runs it is a :class:`~.plan.Planes` from the composition root: an embedded API, or the genuine
programs. Left out on purpose: konnectivity, data store migration, exposure other than by address.
"""
