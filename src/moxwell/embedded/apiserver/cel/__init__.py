"""
The Common Expression Language as Kubernetes validation rules use it: parser, type checker, compiler
to closures.
"""
