"""
Small stand-ins for programs of others, for lab and standalone only.

Where no Cluster API, Kamaji, kube-controller-manager or kube-scheduler is installed, these loops do
the part of their work that Moxwell's users see, on the same kinds and with the same fields. Each
does less than the genuine one and says so in its first lines. In operator mode none of them runs.
"""
