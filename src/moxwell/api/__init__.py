"""
API types: kinds as frozen Structs, conditions, quantities, selectors, conversions, CRDs. Pure; no
I/O.
"""
