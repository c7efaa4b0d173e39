"""Requests that the API server passes on to kubelets: logs, exec, port forwarding and usage."""
