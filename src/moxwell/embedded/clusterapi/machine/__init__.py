"""
The Machine loop of Cluster API, in small: joins bootstrap data, guest and node; drains before the
end.

Left out on purpose: drain rules, hooks other than pre-terminate waits, in-place updates.
"""
