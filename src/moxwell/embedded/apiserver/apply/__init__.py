"""Server-side apply: field sets, merging of typed values, and managedFields."""
