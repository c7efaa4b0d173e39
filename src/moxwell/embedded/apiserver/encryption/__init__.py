"""Encryption at rest: the bodies of Secrets in the database, with keys outside of it."""
