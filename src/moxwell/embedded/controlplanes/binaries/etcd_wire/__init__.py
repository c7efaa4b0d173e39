"""
The messages of etcd's gRPC API that we call, generated from ``etcd_rpc.proto``.

``etcd_rpc.proto`` is a subset of etcd's own ``rpc.proto``. The rest is generated in this folder by
``python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. etcd_rpc.proto`` and is not edited,
except for the first line of the ``.pyi``.
"""
