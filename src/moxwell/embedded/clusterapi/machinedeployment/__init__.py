"""The MachineDeployment controller of Cluster API; rollback is not implemented."""
