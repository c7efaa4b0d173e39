"""The Proxmox cluster that the values of the upstream Helm chart describe: ``pve`` and ``labs``."""

from typing import Any

Json = dict[str, Any]
TOKEN, SECRET = "clastix@pam!capi", "0f0f0f0f-1111-4222-8333-444455556666"
VALUES = """
proxmox: {secret: {name: proxmox-secret, namespace: ""}}
ipamProvider:
  {enabled: true, ranges: [192.168.100.10-192.168.100.250], prefix: "24", gateway: 192.168.100.1}
cluster:
  controlPlane: {version: v1.31.4}
  allowedNodes: [labs]
  credentialsRef: {name: sample-proxmox-secret, namespace: default}
  dnsServers: [8.8.8.8]
  ipv4Config: {addresses: [192.168.100.10], gateway: 192.168.100.1, prefix: 24}
nodePools:
  - name: default
    replicas: 1
    autoscaling: {enabled: false, labels: {autoscaling: enabled}, minSize: "1", maxSize: "6"}
    sourceNode: pve
    allowedNodes: [labs]
    pool: ""
    templateId: 100
    templateSelector: {matchTags: [ubuntu-nobe-kube-1.31.4]}
    network:
      {bridge: vmbr0, model: virtio, dnsServers: [8.8.8.8], addressesFromPools: {enabled: true}}
    storage: local
    format: qcow2
    disks: {bootVolume: {disk: scsi0, sizeGb: 25}}
    memoryMiB: 8192
    numCores: 2
    numSockets: 2
    additionalCloudInitFiles: "#cloud-config\\ntimezone: Europe/Rome\\n"
    users: [{name: ubuntu, shell: /bin/bash, lockPassword: true, sshAuthorizedKeys: [], sudo: x}]
"""


def example_cluster() -> Json:
    """A Proxmox cluster as the values describe it."""
    hardware = {"cpus": 32, "sockets": 2, "memory": "256G", "numa_nodes": 2}
    nodes = [
        {"name": name, "address": f"192.168.100.{n}/24", **hardware}
        for n, name in ((2, "pve"), (3, "labs"))
    ]
    kinds = ["images", "rootdir", "iso", "vztmpl", "snippets", "import", "backup"]
    local = {
        "storage": "local", "type": "nfs", "server": "192.168.100.5", "export": "/srv",
        "content": kinds, "capacity": "4T",
    }  # fmt: skip
    user, _, _ = TOKEN.partition("!")
    access = {
        "users": [{"userid": "root@pam", "password": "moxwell"}, {"userid": user}],
        "tokens": [{"token": TOKEN, "secret": SECRET, "privsep": False}],
        "acl": [{"path": "/", "user": user, "role": "Administrator"}],
    }
    guests = [
        _template(100, "ubuntu-nobe-kube-1.31.4", "v1.31.4"),
        _template(101, "ubuntu-nobe-kube-1.32.2", "v1.32.2"),
        _template(102, "ubuntu-22.04-k8s", "v1.34.1"),
    ]
    return {
        "name": "basement", "version": "8.4.21", "cluster": "basement", "nodes": nodes,
        "storages": [local], "access": access, "guests": guests,
    }  # fmt: skip


def _template(vmid: int, name: str, version: str) -> Json:
    config = {
        "cores": 2, "memory": 2048, "agent": 1, "ostype": "l26", "scsihw": "virtio-scsi-single",
        "boot": "order=scsi0", "net0": f"virtio=BC:24:11:00:00:{vmid:02X},bridge=vmbr0",
        "scsi0": f"local:{vmid}/base-{vmid}-disk-0.qcow2,size=4G", "tags": f"k8s-{version}",
    }  # fmt: skip
    return {"vmid": vmid, "node": "pve", "name": name, "template": True, "config": config}
