"""Control planes of tenants: embedded in processes, from binaries, or inside simulated guests."""
