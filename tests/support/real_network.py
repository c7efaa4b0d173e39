"""Pods for tests of the network of genuine nodes, and a firewall without a way to nodes."""

import base64
import subprocess
from datetime import UTC, datetime

import yaml

from moxwell.pki.certificates import CertificateConfig, create_ca, issue
from realnode import driver_image, template
from support.real_nodes import HERE, NODES

PORT = 8443
SERVER = """
import http.server, json, ssl, sys
class Answers(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def send(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.send(self.client_address[0].encode())
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = review["request"]["name"]
        answer = {"uid": review["request"]["uid"], "allowed": name != "unwanted",
                  "status": {"message": "a pod says no"}}
        self.send(json.dumps(dict(review, response=answer)).encode())
server = http.server.ThreadingHTTPServer(("0.0.0.0", PORT), Answers)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
print("serving", flush=True)
server.serve_forever()
""".replace("PORT", str(PORT))
FETCH = """
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile="/tls/ca.crt")
context.check_hostname = False
print(urllib.request.urlopen(sys.argv[1], context=context, timeout=10).read().decode())
"""


def close_the_way() -> None:
    """Drop what this namespace begins towards the nodes; answers to nodes pass."""
    rules = f"""table inet moxwell {{ chain output {{
      type filter hook output priority 0;
      ip saddr {HERE} ip daddr {NODES} ct state new drop
    }}
    }}
    """
    words = ["chroot", str(template.folder()), "nft", "-f", "-"]
    subprocess.run(words, input=rules, text=True, check=True)


def server_objects(first: str, second: str) -> str:
    """An HTTPS server on one node with a Service, and a pod on another node that asks it."""
    now = datetime.now(UTC)
    ca = create_ca("pods", now)
    names = ("server.default.svc", "server.default.svc.cluster.local")
    config = CertificateConfig(common_name="server", alt_names=names, client_auth=False)
    pair = issue(config, ca, now)
    tls = {"tls.crt": pair.certificate.decode(), "tls.key": pair.key.decode()}
    tls["ca.crt"] = ca.certificate.decode()
    meta = {"name": "server"}
    spec = {"selector": {"app": "server"}, "ports": [{"port": 443, "targetPort": PORT}]}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": tls}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
    pods = [_pod("server", first, ["-c", SERVER]), _pod("client", second, ["-c", SLEEP])]
    return yaml.safe_dump_all([secret, service, *pods, _webhook(tls["ca.crt"])])


SLEEP = "import time; time.sleep(36000)"


def _pod(name: str, node: str, arguments: list[str]) -> dict[str, object]:
    mount = {"name": "tls", "mountPath": "/tls"}
    container = {
        "name": "python",
        "image": driver_image.name(),
        "command": ["python3"],
        "args": arguments,
        "volumeMounts": [mount],
    }
    spec = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "tls", "secret": {"secretName": "server"}}],
    }
    meta = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _webhook(ca: str) -> dict[str, object]:
    client = {
        "service": {"name": "server", "namespace": "default", "path": "/"},
        "caBundle": base64.b64encode(ca.encode()).decode(),
    }
    rule = {
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
        "operations": ["CREATE"], "scope": "Namespaced",
    }  # fmt: skip
    space = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
    webhook = {
        "name": "server.default.svc.local",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": client,
        "rules": [rule],
        "namespaceSelector": space,
        "failurePolicy": "Fail",
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "server"},
        "webhooks": [webhook],
    }
