"""
``karpenter.capacitybuffer``: keeps capacity free for future pods.

The controller resolves the template and the number of replicas and writes the conditions;
``buffer_store`` holds what was resolved, and where the last pass placed it.
"""
