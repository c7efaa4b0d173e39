"""Pure bootstrap data of guests: cloud-init, network configuration, Ignition, Talos and the NoCloud ISO."""
