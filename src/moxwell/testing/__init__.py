"""
Support for tests: virtual time, builders, fakes, and the contract checks that fakes and real parts
pass.
"""
