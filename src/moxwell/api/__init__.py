"""The nouns: kinds as frozen Structs, conditions, quantities, selectors, conversions, CRDs."""
