"""Controllers of ``Tenant`` and ``Kubernetes``: they create what such an object describes."""
