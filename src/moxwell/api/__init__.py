"""The nouns: kinds as frozen values, conditions, quantities, conversions and their CRDs."""
