"""
The in-cluster IPAM provider, in small: pools give addresses to claims.

An IPAddress has the name of its claim, which makes giving the same claim two addresses impossible;
the address itself is unique because one loop gives them one at a time, reading what is given live.
"""
