"""Tenants and their clusters: one object a person writes, and everything it stands for."""
