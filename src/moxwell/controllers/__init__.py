"""Controllers of the product: infra (Cluster API infrastructure), cloud (CCM) and tenancy."""
