"""
The Common Expression Language, as far as Kubernetes rules use it: parsed, checked, compiled to
closures.
"""
