"""
Kamaji's TenantControlPlane controller.

A :class:`~.plan.ControlPlaneRunner` runs the control planes: in this process or as binaries.
Konnectivity, data store migration and exposure other than by address are not implemented.
"""
