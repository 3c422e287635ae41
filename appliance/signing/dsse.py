"""Signed statements: in-toto Statements v1 in DSSE envelopes, written and read strictly.

A statement lists files by sha256 and says one thing of them (the predicate). An envelope signs
the statement's bytes, so verifying needs no canonical form, and a buyer can do it with openssl
alone. There is exactly one way to write what is signed here: canonical JSON, one signature,
padding bits of base64 zero, the lower of the two forms that an ECDSA signature has. So every
changed byte of an envelope is detected, not only those that the signature covers.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import rfc8785
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from appliance.errors import EvidenceError
from appliance.records.json import sha256

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
ACCEPTANCE = "bench:acceptance/v1"
REPORT = "bench:report/v1"
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # FIPS 186-5
LEAST_RSA_BITS = 3072
SIGNER = "the one of signer.json"


class SigningKey(Protocol):
    """Whatever can sign: a key in memory, in a file, or in a device."""

    @property
    def certificate(self) -> x509.Certificate: ...

    def sign(self, data: bytes) -> bytes:
        """Signature over the sha256 of `data`, in the one form that `is_signed` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Files by sha256 (`subjects`) and what is stated of them."""

    predicate_type: str
    subjects: Mapping[str, str]
    predicate: Mapping[str, str]


# ------------------------------------------------------------------ signatures


def key_id(certificate: x509.Certificate) -> str:
    """sha256 of the certificate's SubjectPublicKeyInfo, in hexadecimal."""
    public = certificate.public_key()
    return sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def lower_form(signature: bytes) -> bytes:
    """The ECDSA signature over P-256 whose s is the lower of s and n - s; both would verify."""
    r, s = decode_dss_signature(signature)
    return encode_dss_signature(r, min(s, P256_ORDER - s))


def is_supported(certificate: x509.Certificate) -> bool:
    """Whether the key is one that every PDF reader can check: P-256, or RSA of 3072 bits up."""
    try:
        public = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):  # of no curve, or no point on it
        return False
    if isinstance(public, ec.EllipticCurvePublicKey):
        return isinstance(public.curve, ec.SECP256R1)
    return isinstance(public, rsa.RSAPublicKey) and public.key_size >= LEAST_RSA_BITS


def is_signed(certificate: x509.Certificate, signature: bytes, data: bytes) -> bool:
    """Whether `signature` over `data` was made with this certificate's key, in its one form."""
    public = certificate.public_key()
    try:
        if isinstance(public, ec.EllipticCurvePublicKey):
            public.verify(signature, data, ec.ECDSA(SHA256()))
            return lower_form(signature) == signature
        if isinstance(public, rsa.RSAPublicKey):
            public.verify(signature, data, padding.PKCS1v15(), SHA256())
            return True
    except (InvalidSignature, ValueError):
        pass
    return False


# ------------------------------------------------------------------ envelopes


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def envelope(payload_type: str, payload: bytes, key: SigningKey) -> bytes:
    """A DSSE envelope in canonical JSON, signed once."""
    signature = key.sign(pae(payload_type, payload))
    return _envelope(payload_type, payload, key_id(key.certificate), signature)


def open_envelope(
    data: bytes,
    certificate: x509.Certificate,
    name: str,
    *,
    holder: str = SIGNER,
    wanted: str = PAYLOAD_TYPE,
) -> bytes:
    """The payload of an envelope called `name`, signed once and by this certificate's key.

    `holder` says in the sentence of an error whose key that is; `wanted` is the payload's type.
    Raises EvidenceError for anything else, and for any other way to write the same envelope.
    """
    try:
        fields = json.loads(data)
        payload = base64.b64decode(fields["payload"], validate=True)
        (signed,) = fields["signatures"]
        signature = base64.b64decode(signed["sig"], validate=True)
        kind, signer = fields["payloadType"], signed["keyid"]
        again = _envelope(kind, payload, signer, signature)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, binascii.Error):
        raise EvidenceError(f"{name} is not a signed envelope with one signature") from None
    if again != data:
        raise EvidenceError(f"{name} is not written as it was signed: a byte of it was changed")
    if kind != wanted:
        raise EvidenceError(f"{name} holds {kind}, where {wanted} is wanted")
    if signer != key_id(certificate):
        raise EvidenceError(f"{name} was signed with another key than {holder}")
    if not is_signed(certificate, signature, pae(kind, payload)):
        raise EvidenceError(f"{name}: the signature does not fit its content")
    return payload


def signer_of(data: bytes, name: str) -> str:
    """The key id that an envelope called `name` gives, which proves nothing before it is opened."""
    try:
        (signed,) = json.loads(data)["signatures"]
        return str(signed["keyid"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise EvidenceError(f"{name} is not a signed envelope with one signature") from None


def _envelope(payload_type: str, payload: bytes, signer: str, signature: bytes) -> bytes:
    return rfc8785.dumps(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": payload_type,
            "signatures": [{"keyid": signer, "sig": base64.b64encode(signature).decode()}],
        }
    )


# ------------------------------------------------------------------ statements


def write_statement(statement: Statement) -> bytes:
    """The statement as canonical JSON, its subjects in the order of their names."""
    return rfc8785.dumps(
        {
            "_type": STATEMENT_TYPE,
            "predicate": dict(statement.predicate),
            "predicateType": statement.predicate_type,
            "subject": [
                {"digest": {"sha256": digest}, "name": name}
                for name, digest in sorted(statement.subjects.items())
            ],
        }
    )


def read_statement(payload: bytes, predicate_type: str, name: str) -> Statement:
    """The statement in an envelope called `name`; EvidenceError if it is of another kind."""
    try:
        fields = json.loads(payload)
        statement = Statement(
            predicate_type=fields["predicateType"],
            subjects={item["name"]: item["digest"]["sha256"] for item in fields["subject"]},
            predicate=fields["predicate"],
        )
        is_whole = write_statement(statement) == payload and _is_plain(statement)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise EvidenceError(f"{name} does not hold an in-toto statement in canonical form")
    if statement.predicate_type != predicate_type:
        raise EvidenceError(
            f"{name} says {statement.predicate_type} of its files, where {predicate_type} is wanted"
        )
    return statement


def _is_plain(statement: Statement) -> bool:
    """Only words, and digests that are digests."""
    words: list[Any] = [
        statement.predicate_type,
        *statement.subjects,
        *statement.predicate,
        *statement.predicate.values(),
    ]
    return all(isinstance(word, str) for word in words) and all(
        re.fullmatch("[0-9a-f]{64}", digest) for digest in statement.subjects.values()
    )


def sign_statement(statement: Statement, key: SigningKey) -> bytes:
    """The statement in an envelope: the bytes of a .dsse.json file."""
    return envelope(PAYLOAD_TYPE, write_statement(statement), key)


def open_statement(
    data: bytes,
    certificate: x509.Certificate,
    predicate_type: str,
    name: str,
    *,
    holder: str = SIGNER,
) -> Statement:
    """The statement of a .dsse.json file signed with this certificate's key."""
    payload = open_envelope(data, certificate, name, holder=holder)
    return read_statement(payload, predicate_type, name)


def assembled(statement: Statement, certificate: x509.Certificate, signature: bytes) -> bytes:
    """The envelope of a statement that this key has signed so; whether it did is not checked."""
    return _envelope(PAYLOAD_TYPE, write_statement(statement), key_id(certificate), signature)


def signature_of(envelope: bytes) -> bytes:
    """The signature in an envelope that `sign_statement` wrote."""
    return base64.b64decode(json.loads(envelope)["signatures"][0]["sig"])
