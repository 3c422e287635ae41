"""Certificates that somebody else made: read in a confined child, and only then here.

The child reads all that is asked of one (name, key, extensions) and answers with its DER bytes, so
that what OpenSSL meets here is one certificate that it has survived.
"""

from __future__ import annotations

from contextlib import suppress

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding

from appliance.errors import BenchError
from appliance.ipc import confined_reader


def load(pem: bytes, refusal: BenchError) -> x509.Certificate:
    """The first certificate of a file in PEM form; `refusal` for what is none."""
    death = type(refusal)
    return x509.load_der_x509_certificate(
        confined_reader.content("the certificate", lambda: _der(pem, refusal), death=death)
    )


def _der(pem: bytes, refusal: BenchError) -> bytes:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise refusal from None
    with suppress(ValueError, UnsupportedAlgorithm, x509.UnsupportedGeneralNameType):
        certificate.subject.rfc4514_string()
        certificate.public_key()
        tuple(certificate.extensions)
    return certificate.public_bytes(Encoding.DER)
