"""
The CSI protocol's messages, generated from the specification's own ``csi.proto`` (v1.13.0).

``csi.proto`` is the file of the Go module github.com/container-storage-interface/spec (Apache-2.0).
The rest is made from it, in this folder, by
``python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. csi.proto`` and is not edited, but for
the first line of the ``.pyi``. There are no generated servers: :mod:`moxwell.csi.server` reads the
services from the descriptor.
"""
