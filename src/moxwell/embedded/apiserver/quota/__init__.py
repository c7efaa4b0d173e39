"""What a namespace may use: quotas over all its objects, limits on each of them."""
