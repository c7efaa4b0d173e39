"""
The protobuf messages of Cluster Autoscaler's ``externalgrpc`` provider.

``externalgrpc.proto`` is that of the repository kubernetes/autoscaler (Apache-2.0);
``core_v1.proto`` has the messages of a Node and a Pod that are used, with the field numbers of
Kubernetes. The other files are generated in this directory by ``python -m grpc_tools.protoc -I.
--python_out=. --pyi_out=. externalgrpc.proto core_v1.proto`` and are not edited, except for the
first line of the ``.pyi``. :mod:`moxwell.externalgrpc.server` reads the
service from the descriptor.
"""
