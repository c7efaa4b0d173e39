"""
The composition root: where everything stateful is made and wired, and nothing is decided.

``serving`` opens an embedded API with our kinds in it, ``planes`` hosts the control planes of
tenants, ``estate`` connects regions of Proxmox, ``lab`` makes simulated ones, ``running`` is the
flat list of everything that runs in a mode. Imported by ``cli`` only.
"""
