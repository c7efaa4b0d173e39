"""
``karpenter.capacitybuffer``: keeps capacity free for pods to come.

The controller resolves the template and the number of replicas and writes the conditions;
``buffer_store`` holds what was resolved, and where the last pass placed it.
"""
