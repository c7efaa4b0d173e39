"""ResourceQuota and LimitRange: admission and status."""
