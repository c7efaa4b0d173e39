"""Pure decisions: placement, templates, VMIDs, addresses, guest hardware and rollouts."""
