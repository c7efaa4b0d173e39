"""
Manifests of a cluster with machines in two regions, as a user of Cluster API applies them.

The control plane is an object whose status the test writes, as a hosted one would.
"""

CLUSTER = """
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c, namespace: default}
spec:
  clusterNetwork: {pods: {cidrBlocks: ["10.244.0.0/16"]}}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: ProxmoxCluster, name: c}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KamajiControlPlane, name: c}
---
apiVersion: controlplane.cluster.x-k8s.io/v1alpha2
kind: KamajiControlPlane
metadata: {name: c, namespace: default}
spec: {replicas: 1, version: v1.34.1, dataStoreName: default}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: ProxmoxCluster
metadata: {name: c, namespace: default}
spec:
  controlPlaneEndpoint: {host: 127.0.0.1, port: %(port)s}
  dnsServers: [8.8.8.8]
  zoneConfig:
    - zone: a
      region: north
      ipv4Config: {addresses: ["10.1.0.10-10.1.0.99"], prefix: 24, gateway: 10.1.0.1}
    - zone: b
      region: south
      ipv4Config: {addresses: ["10.2.0.10-10.2.0.99"], prefix: 24, gateway: 10.2.0.1}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: w, namespace: default}
spec:
  template:
    spec:
      joinConfiguration:
        nodeRegistration:
          name: '{{ local_hostname }}'
          kubeletExtraArgs:
            - {name: provider-id, value: "proxmox://'{{ ds.meta_data.instance_id }}'"}
"""

TEMPLATE = """
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: ProxmoxMachineTemplate
metadata: {name: %(name)s, namespace: default}
spec: {template: {spec: {templateID: 9000, %(more)s}}}
"""

DEPLOYMENT = """
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: %(name)s, namespace: default}
spec:
  clusterName: c
  replicas: %(replicas)s
  selector: {matchLabels: {}}
  template:
    spec:
      clusterName: c
      version: v1.34.1
      bootstrap:
        configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: w}
      infrastructureRef:
        apiGroup: infrastructure.cluster.x-k8s.io
        kind: ProxmoxMachineTemplate
        name: %(template)s
"""

CHECK = """
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: c, namespace: default}
spec:
  clusterName: c
  selector: {matchLabels: {cluster.x-k8s.io/cluster-name: c}}
  checks:
    unhealthyNodeConditions:
      - {type: Ready, status: Unknown, timeoutSeconds: 1}
      - {type: Ready, status: "False", timeoutSeconds: 1}
"""
