"""Attacks: what a hostile tenant, guest, kubelet, Proxmox region, client or clock tries, as tests.

Every test here names an attack and asserts that it has no effect beyond its own request. The
threat model is docs/security.md; each row of its tables names the test that shows it.

One module per class of attack:

- ``test_parsers*``: bodies and answers that are too deep, too large, or malformed;
- ``test_limits*``: one client uses the time, memory or storage of all;
- ``test_ownership*``: guests, volumes and addresses of somebody else;
- ``test_credentials*``: tokens, certificates, sessions, keys, regions of somebody else;
- ``test_authorization*``: rights that an account does not have (RBAC, Node authorizer, admission);
- ``test_audit*``: writes without a record, records with secrets;
- ``test_clocks*``: clocks that jump or differ, restarts;
- ``test_storage*``: damaged or full databases;
- ``test_supply*``: dependencies and images that are not locked.

A new kind or endpoint is added as follows:

1. a kind with references (names of Secrets, volumes, guests, regions): a case in
   ``test_ownership*`` in which the reference names an object of another tenant, and one in
   ``test_credentials*`` if the reference leads to a secret;
2. an endpoint that accepts a body: a row in the table of decoders of ``test_parsers*``;
3. an endpoint that lists or streams: a case in ``test_limits*`` with a client that does not read;
4. a verb or subresource with an authorization rule of its own: a case in
   ``test_authorization*`` and, for the embedded API server, in the group ``escalation`` of
   ``tests/conformance/apisuite``, which compares it with the genuine kube-apiserver.

Each class has, beside the named cases, a property or fuzz test with a fixed seed.
"""
