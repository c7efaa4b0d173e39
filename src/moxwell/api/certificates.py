"""
Certificates of others, as they are.

Cluster API gives the authorities it makes the serial number zero, which RFC 5280 forbids and the
cryptography library warns of. They are trusted by millions of nodes; so they are read here too.
"""

import warnings

from cryptography import x509
from cryptography.utils import CryptographyDeprecationWarning


def load_certificate(pem: bytes) -> x509.Certificate:
    """The first certificate of a PEM text."""
    return load_certificates(pem)[0]


def load_certificates(pem: bytes) -> list[x509.Certificate]:
    """All certificates of a PEM text; ValueError where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        return x509.load_pem_x509_certificates(pem)
