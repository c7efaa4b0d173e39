"""
The API conformance suite: cases as data, played on a kube-apiserver and on the embedded API server.
"""
