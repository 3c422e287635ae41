"""The signature inside the PDF (PAdES B-B), and the files that the PDF carries.

pyHanko writes and reads it. Its own judgement is not strict enough for evidence: it accepts
bytes after the signed ones, changed metadata and junk in the padding of the signature (tried
with 0.38). So a signed report must also be exactly what was written: one signature that
certifies the document and allows no change, the signed ranges being the whole file but the
signature, the signature in the one form that it can have, and the signer that the caller names.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

from asn1crypto import cms  # type: ignore[import-untyped]
from asn1crypto import x509 as asn1
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.pdf_utils.metadata.model import DocumentMetadata
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign.fields import MDPPerm, SigFieldSpec, SigSeedSubFilter
from pyhanko.sign.signers.pdf_cms import Signer
from pyhanko.sign.signers.pdf_signer import PdfSignatureMetadata, PdfSigner, PdfSigningSession
from pyhanko.sign.validation.pdf_embedded import (
    EmbeddedPdfSignature,
    async_validate_pdf_signature,
)
from pyhanko.sign.validation.status import SignatureCoverageLevel
from pyhanko_certvalidator import ValidationContext

from appliance.errors import ApplianceError, EvidenceError
from appliance.ipc import confined_child
from appliance.signing.dsse import SigningKey, is_signed
from appliance.signing.passive_pdf import check_passive

FIELD = "Signature"
NAME = "report.pdf"
LARGEST_LOAD = 2**26  # bytes of all attachments; a report uses a quarter of it at most
ELSEWHERE = frozenset({"/FS", "/RF", "/DOS", "/Mac", "/Unix", "/FFilter", "/FDecodeParms"})
"""Keys by which a reader of PDF may save another file than the one that is checked here."""
PARSED_BYTES, PARSED_FOR_A_BYTE = 6 * 10**7, 3
"""Memory that a PDF may take while it is parsed: ten times what that of 64 devices takes."""
LONGEST_ECDSA = 72  # bytes of an ECDSA P-256 signature in DER
MOMENT = re.compile(rb"/M \(D\\072(\d{14})Z\)")
SIGNATURE = re.compile(rb"/Contents <[0-9A-F]+>")

for _source in ("pyhanko", "pyhanko_certvalidator"):  # they explain refusals on stderr
    logging.getLogger(_source).addHandler(logging.NullHandler())


# ------------------------------------------------------------------ signing


class _Cms(Signer):
    """pyHanko's signer over any key of ours; the private key stays where it is."""

    def __init__(self, key: SigningKey) -> None:
        super().__init__(signing_cert=_asn1(key.certificate))
        self._key = key

    async def async_sign_raw(
        self,
        data: bytes,
        digest_algorithm: str,
        dry_run: bool = False,  # noqa: FBT001, FBT002 - the signature is pyHanko's
    ) -> bytes:
        if digest_algorithm != "sha256":
            raise ApplianceError(f"the PDF asked for {digest_algorithm}, where sha256 is wanted")
        return bytes(_signature_size(self._key.certificate)) if dry_run else self._key.sign(data)


class _Dated(DocumentMetadata):
    """Metadata of the moment of signing: pyHanko would write its own, in the machine's zone."""

    def __init__(self, moment: datetime) -> None:
        object.__setattr__(self, "_moment", moment)
        super().__init__()

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, self._moment if name == "last_modified" else value)

    _moment: datetime


class _Writer(IncrementalPdfFileWriter):
    """Adds a revision whose bytes follow from what is added, and when."""

    def __init__(self, data: bytes, moment: datetime) -> None:
        super().__init__(BytesIO(data))
        revision = hashlib.sha256(moment.isoformat().encode() + data).digest()[:16]
        own = generic.ByteStringObject(revision)
        self._document_id = generic.ArrayObject([self._document_id[0], own])
        self._meta = _Dated(moment)


class _PdfSigner(PdfSigner):
    """Writes the time of signing in UTC, whatever zone the machine is in."""

    moment: datetime

    def init_signing_session(
        self,
        pdf_out: Any,
        existing_fields_only: bool = False,  # noqa: FBT001, FBT002 - the signature is pyHanko's
    ) -> PdfSigningSession:
        session = super().init_signing_session(pdf_out, existing_fields_only)
        session.system_time = self.moment
        return session


def sign_pdf(
    data: bytes,
    key: SigningKey,
    *,
    reason: str,
    location: str | None = None,
    moment: datetime | None = None,
) -> bytes:
    """The PDF with an invisible PAdES B-B signature that certifies it and allows no change.

    It says that it was signed at `moment`, in UTC: by default now. Raises ApplianceError if the PDF
    is signed already or cannot be read.
    """
    about = PdfSignatureMetadata(
        field_name=FIELD,
        md_algorithm="sha256",
        reason=reason,
        location=location,
        certify=True,
        subfilter=SigSeedSubFilter.PADES,
        docmdp_permissions=MDPPerm.NO_CHANGES,
    )
    signer = _PdfSigner(about, signer=_Cms(key), new_field_spec=SigFieldSpec(sig_field_name=FIELD))
    signer.moment = (moment or datetime.now(UTC)).replace(microsecond=0)
    try:
        writer = _Writer(data, signer.moment)
        is_signed_already = bool(list(writer.prev.embedded_signatures))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Can not find any timezone")
            signed: BytesIO = asyncio.run(signer.async_sign_pdf(writer))
    except Exception as error:  # noqa: BLE001 - a parser of PDF may raise anything
        raise ApplianceError(f"the PDF could not be signed: {error}") from None
    if is_signed_already:
        raise ApplianceError("the PDF is signed already, and a signed file is never changed")
    return signed.getvalue()


def _signature_size(certificate: x509.Certificate) -> int:
    public = certificate.public_key()
    return public.key_size // 8 if isinstance(public, rsa.RSAPublicKey) else LONGEST_ECDSA


def _is_rsa(certificate: x509.Certificate) -> bool:
    return isinstance(certificate.public_key(), rsa.RSAPublicKey)


def _asn1(certificate: x509.Certificate) -> asn1.Certificate:
    return asn1.Certificate.load(certificate.public_bytes(Encoding.DER))


@dataclass(frozen=True)
class _Blank:
    """Signs nothing: what stands where the signature will be."""

    certificate: x509.Certificate

    def sign(self, data: bytes) -> bytes:
        del data
        return bytes(_signature_size(self.certificate))


# ------------------------------------------------------------------ checking


def is_of_pages(data: bytes, pages: bytes, certificate: x509.Certificate, *, reason: str) -> bool:
    """Whether a signed PDF is these pages, and what `sign_pdf` adds to them, and nothing else.

    Who signs also writes a second revision, in which every page may be another one. So it is made
    again, with the same time and certificate, and must have the same bytes but for the signature.
    """
    times = MOMENT.findall(data, len(pages))
    if not data.startswith(pages) or len(times) != 1:
        return False
    try:
        moment = datetime.strptime(times[0].decode(), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        again = sign_pdf(pages, _Blank(certificate), reason=reason, moment=moment)
    except (ValueError, ApplianceError):
        return False
    found = SIGNATURE.search(again, len(pages))
    if found is None or len(again) != len(data):
        return False
    begin, end = found.span()
    return data[:begin] == again[:begin] and data[end:] == again[end:]


def check_pdf(data: bytes, certificate: x509.Certificate) -> None:
    """Raise EvidenceError unless this certificate's key signed the whole of this PDF, once.

    Whether the certificate is valid and to be trusted is checked elsewhere (keys.check_trust);
    here it is the one root.
    """
    try:
        with _little_memory(data):
            reader = PdfFileReader(BytesIO(data), strict=True)
            signature = _only_signature(reader)
            _check_form(data, reader, signature)
            check_passive(reader.root, NAME)
            _check_cms(signature, certificate)
            _check_with_pyhanko(signature, certificate)
    except EvidenceError:
        raise
    except Exception:  # noqa: BLE001 - a hostile file may make a parser raise anything
        raise _unreadable() from None


def _only_signature(reader: PdfFileReader) -> EmbeddedPdfSignature:
    signatures: list[EmbeddedPdfSignature] = list(reader.embedded_signatures)
    if len(signatures) != 1:
        raise EvidenceError(f"{NAME} has {len(signatures)} signatures, where one is wanted")
    return signatures[0]


def _check_form(data: bytes, reader: PdfFileReader, signature: EmbeddedPdfSignature) -> None:
    """The signature leaves out itself alone, and is written in the one way that we write."""
    if reader.xrefs.total_revisions != 2:  # noqa: PLR2004 - the pages, and their signature
        raise EvidenceError(f"{NAME} was saved again after it had been made")
    begin, end = _gap([int(number) for number in signature.byte_range], len(data))
    content = signature.pkcs7_content
    if data[begin:end] != b"<" + content.hex().upper().encode() + b">":
        raise EvidenceError(f"{NAME}: the signed ranges leave out more than the signature")
    if signature.docmdp_level != MDPPerm.NO_CHANGES:
        raise EvidenceError(f"{NAME}: the signature does not forbid later changes")
    if signature.sig_object.get("/SubFilter") != SigSeedSubFilter.PADES.value:
        raise EvidenceError(f"{NAME}: the signature is of another kind than PAdES")


def _gap(ranges: list[int], size: int) -> tuple[int, int]:
    """Where the signature stands: the only bytes that the signed ranges may leave out."""
    shape = len(ranges) == 4  # noqa: PLR2004 - two ranges, each a start and a length
    if shape and ranges[0] == 0 and 0 < ranges[1] < ranges[2]:
        begin, end = ranges[1], ranges[2]
        if ranges[3] > 0 and end + ranges[3] == size:
            return begin, end
    raise EvidenceError(f"{NAME}: the signature does not cover the whole file")


def _check_cms(signature: EmbeddedPdfSignature, certificate: x509.Certificate) -> None:
    """One signer, by the caller's certificate, and nothing beside what he signed.

    A CMS message holds fields that no signature covers (versions, lists of algorithms), so it is
    built again from its signed parts and compared, with zeros behind it.
    """
    info, content = signature.signer_info, signature.pkcs7_content
    attributes = info["signed_attrs"].untag().dump(force=True)
    signed = info["signature"].native
    again = _message(certificate, attributes, signed)
    if content[: len(again)] != again or any(content[len(again) :]):
        raise EvidenceError(
            f"{NAME} was signed with another certificate than signer.json's, or carries something "
            "beside its one signature"
        )
    if not is_signed(certificate, signed, attributes):
        raise EvidenceError(f"{NAME}: the signature does not fit its content")


def _message(certificate: x509.Certificate, attributes: bytes, signed: bytes) -> bytes:
    """The CMS message that PAdES B-B asks for, in the one form that we write."""
    holder = _asn1(certificate)
    mechanism = "sha256_rsa" if _is_rsa(certificate) else "sha256_ecdsa"
    digest = cms.DigestAlgorithm({"algorithm": "sha256"})
    signer = {
        "version": "v1",
        "sid": cms.SignerIdentifier(
            name="issuer_and_serial_number",
            value=cms.IssuerAndSerialNumber(
                {"issuer": holder.issuer, "serial_number": holder.serial_number}
            ),
        ),
        "digest_algorithm": digest,
        "signed_attrs": cms.CMSAttributes.load(attributes),
        "signature_algorithm": cms.SignedDigestAlgorithm({"algorithm": mechanism}),
        "signature": signed,
    }
    message = {
        "version": "v1",
        "digest_algorithms": [digest],
        "encap_content_info": {"content_type": "data"},
        "certificates": [cms.CertificateChoices(name="certificate", value=holder)],
        "signer_infos": [cms.SignerInfo(signer)],
    }
    whole = cms.ContentInfo({"content_type": "signed_data", "content": cms.SignedData(message)})
    return bytes(whole.dump())


def _check_with_pyhanko(signature: EmbeddedPdfSignature, certificate: x509.Certificate) -> None:
    context = ValidationContext(
        trust_roots=[_asn1(certificate)],
        allow_fetching=False,
        revocation_mode="soft-fail",
    )
    status = asyncio.run(async_validate_pdf_signature(signature, context))
    if not (status.intact and status.valid):
        raise EvidenceError(f"{NAME} was changed after it had been signed")
    if not status.bottom_line or status.coverage != SignatureCoverageLevel.ENTIRE_FILE:
        raise EvidenceError(f"{NAME}: the signature does not hold for the whole file")


def _little_memory(data: bytes, unpacked: int = 0) -> AbstractContextManager[None]:
    """So that a small file cannot make the parser take all of the memory that there is."""
    more = 2 * unpacked  # what is unpacked is copied once more
    return confined_child.memory_room(PARSED_BYTES + PARSED_FOR_A_BYTE * len(data) + more)


def _unreadable() -> EvidenceError:
    return EvidenceError(
        f"{NAME} is not the PDF that was written: it is cut short, was changed, or takes more time "
        "or memory to read than any report; ask for the original"
    )


# ------------------------------------------------------------------ attachments


def attachments(data: bytes) -> Mapping[str, bytes]:
    """Files that a PDF carries, by name; EvidenceError if one cannot be read or comes twice."""
    try:
        with _little_memory(data):
            catalog = PdfFileReader(BytesIO(data), strict=True).root
        with _little_memory(data, LARGEST_LOAD):
            names = catalog.get("/Names", {})
            entries = list(_embedded(names["/EmbeddedFiles"])) if "/EmbeddedFiles" in names else []
            _check_associated(catalog, names)
    except EvidenceError:
        raise
    except Exception:  # noqa: BLE001 - a hostile file may make a parser raise anything
        raise _unreadable() from None
    files = dict(entries)
    if len(files) != len(entries):
        raise EvidenceError(f"{NAME} carries two files of the same name")
    return files


def _embedded(tree: Any) -> Iterator[tuple[str, bytes]]:
    """Entries of the name tree of embedded files; we write it as one flat list."""
    if "/Kids" in tree:
        raise EvidenceError(f"{NAME}: its attachments are not listed as they are written here")
    entries, room = tree["/Names"], LARGEST_LOAD
    for index in range(0, len(entries), 2):
        specification = entries[index + 1]
        name = str(specification["/UF"])
        if str(specification["/F"]) != name:
            raise EvidenceError(f"{NAME}: the attachment {name} has two names")
        if set(specification) & ELSEWHERE or set(specification["/EF"]) != {"/F"}:
            raise EvidenceError(f"{NAME}: the attachment {name} is more than one file")
        content = _content(specification["/EF"]["/F"], room)
        room -= len(content)
        yield name, content


def _check_associated(catalog: Any, names: Any) -> None:
    """EvidenceError where files that the document is associated with are not attached to it."""
    listed = names["/EmbeddedFiles"]["/Names"] if "/EmbeddedFiles" in names else ()
    known = {_place(listed, index) for index in range(1, len(listed), 2)}
    associated = catalog["/AF"] if "/AF" in catalog else ()  # noqa: SIM401 - `get` follows nothing
    if not {_place(associated, index) for index in range(len(associated))} <= known:
        raise EvidenceError(f"{NAME} is associated with files that are not among its attachments")


def _place(array: Any, index: int) -> tuple[int, int] | None:
    """The number of the object that an entry refers to; None for one that stands there itself."""
    one = array.raw_get(index)
    return (one.idnum, one.generation) if isinstance(one, generic.IndirectObject) else None


def _content(stream: generic.StreamObject, room: int) -> bytes:
    """Content of an attachment, of `room` bytes at most: a small file may inflate to gigabytes."""
    kind = stream.get("/Filter")
    if (ELSEWHERE | {"/F", "/DP"}) & set(stream):
        raise EvidenceError(f"{NAME}: the content of an attachment is said to lie elsewhere")
    if kind is None and len(stream.encoded_data) <= room:
        return stream.encoded_data
    if kind == "/FlateDecode" and "/DecodeParms" not in stream:
        inflate = zlib.decompressobj()
        content = inflate.decompress(stream.encoded_data, room + 1)
        if inflate.eof and len(content) <= room:
            return content
    raise EvidenceError(f"{NAME}: its attachments are too large, or not packed as they are here")
