"""The controller of ProxmoxNodeClasses: validation, hash, changes in place, deletion."""
