"""
Keys and X.509 certificates: CAs, what they sign, when it is renewed, and the files it is kept in.

Imports nothing of ours but errors and ``atomic_file``; the time is always passed in.
"""
