"""Certificates that somebody else made: read in a confined child, and only then here.

The child reads all that is asked of one (name, key, extensions) and answers with its DER bytes, so
that what OpenSSL meets here is one certificate that it has survived.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding

from appliance.errors import BenchError
from appliance.ipc import confined_reader

UNREADABLE = (
    ValueError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What reading a certificate raises that is malformed, or not as RFC 5280 has it."""
SIGNS_FOR_PEOPLE = frozenset(
    map(
        x509.ObjectIdentifier,
        (
            "2.5.29.37.0",  # any purpose
            "1.3.6.1.5.5.7.3.3",  # code
            "1.3.6.1.5.5.7.3.4",  # mail
            "1.3.6.1.5.5.7.3.36",  # documents (RFC 9336)
            "1.3.6.1.4.1.311.10.3.12",  # documents, by Microsoft
            "1.2.840.113583.1.1.5",  # documents, by Adobe
        ),
    )
)
"""Purposes of a key (extended key usage) under which it may sign a document. One for servers of a
network alone lies on a machine that anybody may have sign."""
JUDGED = frozenset({x509.KeyUsage.oid, x509.BasicConstraints.oid, x509.ExtendedKeyUsage.oid})
"""Extensions that are judged here; who does not judge a critical one may not trust the
certificate (RFC 5280, section 4.2)."""


def load(pem: bytes, refusal: BenchError) -> x509.Certificate:
    """The first certificate of a file in PEM form; `refusal` for what is none."""
    death = type(refusal)
    der = confined_reader.content("the certificate", lambda: _der(pem, refusal), death=death)
    with quiet():
        return x509.load_der_x509_certificate(der)


def of_pem(pem: bytes) -> x509.Certificate:
    """The first certificate in PEM form; raises one of UNREADABLE."""
    with quiet():
        return x509.load_pem_x509_certificate(pem)


@contextmanager
def quiet() -> Iterator[None]:
    """Without what a library says on stderr of a certificate that it reads all the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fault(certificate: x509.Certificate) -> str:
    """Why nobody may go by a certificate, whoever issued it and whatever it is for; or nothing."""
    try:
        certificate.subject.rfc4514_string()
        extensions = tuple(certificate.extensions)
        unknown = [one.oid for one in extensions if one.critical and one.oid not in JUDGED]
    except UNREADABLE:
        return "has names or extensions that cannot be read"
    if unknown:
        return f"has a critical extension that is not judged here ({unknown[0].dotted_string})"
    return ""


def purpose_fault(certificate: x509.Certificate) -> str:
    """Why the key may not sign documents by its purposes, or nothing; it has no `fault`."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return ""
    if SIGNS_FOR_PEOPLE & set(usage):
        return ""
    return "may not sign documents: its extended key usage has other purposes alone"


def _der(pem: bytes, refusal: BenchError) -> bytes:
    try:
        certificate = of_pem(pem)
    except UNREADABLE:
        raise refusal from None
    with suppress(*UNREADABLE):
        certificate.subject.rfc4514_string()
        certificate.public_key()
        tuple(certificate.extensions)
    return certificate.public_bytes(Encoding.DER)
