"""Control planes of tenants: in this process, from binaries, or inside simulated guests."""
