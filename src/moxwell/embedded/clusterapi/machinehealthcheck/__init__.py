"""The MachineHealthCheck controller of Cluster API; without external remediation."""
