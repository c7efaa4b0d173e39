"""
``karpenter.nodeoverlay``: changes prices and extended resources of instance types for decisions.

| module | content |
|---|---|
| ``controller`` | validates overlays against each other and all pools, writes conditions |
| ``provider`` | the provider whose instance types have the overlays applied |
"""
