"""
The messages of Talos' gRPC API that we call, generated from ``talos_machine.proto``.

``talos_machine.proto`` is a subset of Talos' own ``machine.proto``. The rest is generated in this
folder by ``python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. talos_machine.proto`` and is
not edited.
"""
