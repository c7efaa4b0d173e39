"""
The protobuf messages of CSI, generated from the specification's ``csi.proto`` (v1.13.0).

``csi.proto`` is copied from the Go module github.com/container-storage-interface/spec (Apache-2.0).
The other files are generated from it in this directory by
``python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. csi.proto`` and are not edited, except
for the first line of the ``.pyi``. ``pluginregistration.proto`` is that of the Go module
k8s.io/kubelet (Apache-2.0), by which the kubelet finds plugins. No servicer classes are generated:
:mod:`moxwell.csi.server` reads the services from the descriptor.
"""
