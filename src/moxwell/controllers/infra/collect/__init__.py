"""``infra.collect``: guests and seed disks that nobody owns any more."""
