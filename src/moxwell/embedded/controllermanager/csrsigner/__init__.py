"""
The signer of kubelets' certificates, in small.

Signs what a joining node asks for, and nothing else: the kubelet's client signer, the organisation
``system:nodes``, a name ``system:node:…``, asked for by a bootstrap token or by the node itself.
"""
