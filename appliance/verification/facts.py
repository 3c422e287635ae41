"""What a release of bench knows, by which a bundle can be compared offline.

Workloads with their parameters, what a step of them does, their checks; the vendors' peak figures;
qualified records; ranges of libraries. The facts of this release stand in its package. Those of
another one come in a file that the release's own key has signed (scripts/sign_facts.py writes it),
because whoever may choose the facts chooses what looks compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from cryptography import x509

from appliance import extras
from appliance.errors import EvidenceError, UsageError
from appliance.planning import library_ranges, workload_manifest, workload_sizes
from appliance.planning.workload_manifest import WorkloadFacts
from appliance.planning.workload_sizes import WorkloadSizes
from appliance.records.baseline import Peaks
from appliance.records.json import Record, from_json, to_json
from appliance.records.plan import Case
from appliance.records.qualified import Qualified
from appliance.records.system import Device
from appliance.records.workload import Resolved
from appliance.signing import certificates, dsse
from appliance.storage import device_file, qualified_file
from appliance.vendors.registry import MODULES, libraries_of
from appliance.verification import known_checks
from appliance.verification.known_checks import WorkloadChecks
from appliance.version import RELEASED, VERSION

PAYLOAD_TYPE = "application/vnd.bench.facts+json"
"""Payload of the envelope: the file in canonical JSON."""
NAME = "the file of --facts"
HOLDER = "one that you trust with --trust"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsFile(Record):
    """All that one release knows; `ranges` are those of libraries, by vendor.

    Empty ranges: they are not known, because the package is not installed. `released` is the day of
    the release, empty in the facts of one that did not say it.
    """

    schema: Literal["bench/facts/1"] = "bench/facts/1"
    bench_version: str
    workload: tuple[WorkloadFacts, ...]
    sizes: tuple[WorkloadSizes, ...]
    checks: tuple[WorkloadChecks, ...]
    peaks: Peaks
    qualified: Qualified
    ranges: Mapping[str, Mapping[str, str]]
    released: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts of a release, to be asked by name."""

    file: FactsFile
    manifest: Mapping[str, WorkloadFacts] = field(init=False)
    _sizes: Mapping[str, WorkloadSizes] = field(init=False)
    _checks: Mapping[str, WorkloadChecks] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "manifest", {one.name: one for one in self.file.workload})
        object.__setattr__(self, "_sizes", {one.name: one for one in self.file.sizes})
        object.__setattr__(self, "_checks", {one.name: one for one in self.file.checks})

    @property
    def version(self) -> str:
        """The release that they are of."""
        return self.file.bench_version

    def of(self, case: Case) -> WorkloadFacts | None:
        """What the case's workload says of itself in the case's version; None if unknown."""
        known = self.manifest.get(case.workload)
        return known if known is not None and known.version == case.version else None

    def resolved(self, case: Case) -> Resolved | None:
        """What a step of the case does; None where its version or parameters are not known."""
        known, sizes = self.of(case), self._sizes.get(case.workload)
        if known is None or sizes is None or sizes.version != case.version:
            return None
        return workload_sizes.find(sizes, case.parameters, known)

    def checks(self, case: Case) -> WorkloadChecks | None:
        """The checks of the case's workload, in whatever version there are records of."""
        return self._checks.get(case.workload)

    def peaks(self, models: Sequence[str]) -> Peaks:
        """The vendors' figures for these models."""
        return Peaks(peak=tuple(one for one in self.file.peaks.peak if one.model in models))

    def qualified(self, cases: Sequence[Case], devices: Sequence[Device]) -> Qualified:
        """The records that a run of these cases on these devices takes along."""
        models = {device.model for device in devices}
        known = self.file.qualified
        seen = (one for one in known.observed if one.model in models)
        return Qualified(
            schema=known.schema,  # of a release that wrote an older one, so did its runs
            record=tuple(one for one in known.record if one.model in models),
            idle=tuple(one for one in known.idle if one.model in models),
            rate=qualified_file.reference_rates(seen, cases, devices),
        )


@cache
def shipped() -> Facts:
    """The facts of this release."""
    ranges = extras.ranges()
    return Facts(
        file=FactsFile(
            bench_version=VERSION,
            released=RELEASED,
            workload=tuple(workload_manifest.load().values()),
            sizes=workload_sizes.load().workload,
            checks=known_checks.load().workload,
            peaks=device_file.load_peaks(None),
            qualified=qualified_file.load_records(),
            ranges={
                vendor: library_ranges.allowed(ranges, libraries_of(vendor).ranges)
                for vendor in (MODULES if ranges else ())
            },
        )
    )


def sign(file: FactsFile, key: dsse.SigningKey) -> bytes:
    """The facts in an envelope, signed with the key of the release that they are of."""
    return dsse.envelope(PAYLOAD_TYPE, to_json(file), key)


def read(data: bytes, trusted: Sequence[bytes]) -> Facts:
    """The facts of a signed file; EvidenceError unless one of the trusted certificates signed it.

    `trusted` are certificates in PEM form. UsageError where one of them is not.
    """
    for certificate in _certificates(trusted):
        if dsse.signer_of(data, NAME) == dsse.key_id(certificate):
            payload = dsse.open_envelope(
                data, certificate, NAME, holder=HOLDER, wanted=PAYLOAD_TYPE
            )
            return Facts(file=from_json(FactsFile, payload, name=NAME))
    raise EvidenceError(
        f"{NAME} is not signed by a key that you trust: give the certificate of the release that "
        "wrote it with --trust"
    )


def _certificates(trusted: Sequence[bytes]) -> list[x509.Certificate]:
    try:
        with certificates.quiet():
            found = [one for pem in trusted for one in x509.load_pem_x509_certificates(pem)]
        return [one for one in found if dsse.is_supported(one)]
    except certificates.UNREADABLE:
        raise UsageError(
            "a file given with --trust is not a certificate in PEM form: give the signer's "
            "certificate.pem"
        ) from None
