"""
Bootstrap data of guests: cloud-init, network configuration, Ignition, Talos, NoCloud ISO. Pure.
"""
