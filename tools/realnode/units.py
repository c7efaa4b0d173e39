"""The systemd units in the packages kubelet and kubeadm."""

FOLDER = "usr/lib/systemd/system"
KUBELET = {
    f"{FOLDER}/kubelet.service": """[Unit]
Description=kubelet
After=containerd.service network-online.target
[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=2
[Install]
WantedBy=multi-user.target
""",
}
KUBEADM = {
    f"{FOLDER}/kubelet.service.d/10-kubeadm.conf": """[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
""",  # noqa: E501
}
