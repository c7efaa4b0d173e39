"""Who may do what: proof of identity, RBAC, reviews and tokens."""
