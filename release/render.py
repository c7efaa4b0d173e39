"""
Render the components of a clusterctl release: ``render.py > infrastructure-components.yaml``.

The only variable is ``MOXWELL_CONFIG_B64``, the file with the regions in base64.
"""

import sys

import yaml

from moxwell.management.operator_components import cluster_rules, components, own_rules

__all__ = ["cluster_rules", "components", "own_rules"]

if __name__ == "__main__":
    yaml.safe_dump_all(components(), sys.stdout, sort_keys=False, width=120)
