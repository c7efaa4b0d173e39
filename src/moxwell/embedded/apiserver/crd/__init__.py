"""Custom resources: CRDs, structural schemas, validation, defaulting, pruning, CEL rules."""
