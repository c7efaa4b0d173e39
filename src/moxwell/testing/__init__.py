"""Shipped for tests, ours and yours: virtual time, builders, fakes and the contracts they pass."""
