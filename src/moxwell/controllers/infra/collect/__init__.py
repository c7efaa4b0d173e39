"""``infra.collect``: reports orphaned guests and deletes orphaned bootstrap ISOs."""
