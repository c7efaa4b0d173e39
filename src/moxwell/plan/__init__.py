"""
``moxwell plan``: what applying or deleting manifests would change, computed without a write.

It combines dry runs of the API, the plan of the tenancy controller and a simulation of placement.
"""
