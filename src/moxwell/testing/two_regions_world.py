"""
The world file of the two simulated regions, and its API token.

Both regions have a host ``pve1`` and a template 9000, because colliding names are normal.
"""

TOKEN = "moxwell@pve!test"
TOKEN_SECRET = "00000000-0000-4000-8000-000000000000"
_CONFIG = (
    '{cores: 2, memory: 2048, agent: 1, scsihw: virtio-scsi-single, boot: "order=scsi0", '
    'net0: "virtio=BC:24:11:00:00:01,bridge=vmbr0", '
    'scsi0: "%s,size=8G", tags: "ubuntu;k8s-v1.34.1"}'
)
_ACCESS = f"""
    access:
      users: [{{userid: root@pam, password: secret}}, {{userid: moxwell@pve}}]
      tokens: [{{token: "{TOKEN}", secret: {TOKEN_SECRET}, privsep: false}}]
      acl: [{{path: /, user: moxwell@pve, role: Administrator}}]"""
WORLD = f"""
regions:
  - name: north
    version: 8.4.21
    cluster: north
    pace: {{bandwidth: 400M, boot: 6, shutdown: 3, statd: 5}}
    nodes:
      - {{name: pve1, address: 10.1.0.1/24, cpus: 32, memory: 256G}}
      - {{name: pve2, address: 10.1.0.2/24, cpus: 32, memory: 256G}}
      - {{name: pve3, address: 10.1.0.3/24, cpus: 32, memory: 256G}}
    storages:
      - {{storage: local, type: dir, path: /var/lib/vz, content: [iso, vztmpl], capacity: 100G}}
      - {{storage: lvm, type: lvmthin, vgname: pve, thinpool: d, content: [images], capacity: 900G}}
      - {{storage: ceph, type: rbd, pool: vms, monhost: "10.1.0.1", content: [images],
         capacity: 9T}}
{_ACCESS}
    guests:
      - vmid: 9000
        node: pve1
        name: ubuntu
        template: true
        config: {_CONFIG % "ceph:base-9000-disk-0"}
      - vmid: 201
        node: pve2
        name: precious
        running: true
        config: {{cores: 4, memory: 4096, scsi0: "ceph:vm-201-disk-0,size=50G"}}
  - name: south
    version: 9.2.11
    cluster: south
    pace: {{bandwidth: 400M, boot: 6, shutdown: 3, statd: 5}}
    nodes:
      - {{name: pve1, address: 10.2.0.1/24, cpus: 32, memory: 256G}}
      - {{name: pve2, address: 10.2.0.2/24, cpus: 32, memory: 256G}}
    storages:
      - {{storage: local, type: dir, path: /var/lib/vz, content: [iso, vztmpl], capacity: 100G}}
      - {{storage: nfs, type: nfs, server: 10.2.0.9, export: /srv, content: [images], capacity: 9T}}
{_ACCESS}
    guests:
      - vmid: 9000
        node: pve1
        name: ubuntu
        template: true
        config: {_CONFIG % "nfs:9000/base-9000-disk-0.qcow2"}
"""
QUICK = WORLD.replace(
    "boot: 6, shutdown: 3, statd: 5", "boot: 1, setup: 1, shutdown: 0.5, statd: 1, ha: 1"
)  # for tests in real time
