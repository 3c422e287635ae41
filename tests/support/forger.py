"""What a dishonest owner of a key can do to a run: change anything, and sign all of it anew.

A forgery takes the files of a genuine run, changes records in them, and is sealed: the journal is
chained anew, the digests that files have of each other are made anew, the verdict is judged from
what stands there, and everything is signed with a key of the forger's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rfc8785
from support.bundles import seal

from appliance.errors import BenchError
from appliance.judging.verdict import Judge
from appliance.records.json import sha256, to_json
from appliance.signing import keys
from appliance.signing.keys import Key
from appliance.storage import bundle

Data = dict[str, Any]
DIGESTS = {
    "criteria": bundle.CRITERIA,
    "baselines": bundle.BASELINES,
    "peaks": bundle.PEAKS,
    "qualified": bundle.QUALIFIED,
    "challenge": bundle.CHALLENGE,
    "order": bundle.ORDER,
}
"""What the plan names by digest, and the file that it is of."""


@dataclass(kw_only=True)
class Forgery:
    """The data files of a run in a forger's hands; `lines` are those of the journal.

    `after` changes bytes of files that no reader would take, right before they are signed.
    """

    files: dict[str, bytes]
    key: Key = field(default_factory=keys.development_key)
    lines: list[Data] = field(default_factory=list)
    is_judged: bool = True
    after: Callable[[dict[str, bytes]], dict[str, bytes]] = lambda files: files

    @contextmanager
    def record(self, name: str) -> Iterator[Data]:
        """The values of a JSON file, written back as they are left."""
        values = json.loads(self.files[name])
        yield values
        self.files[name] = rfc8785.dumps(values)

    @contextmanager
    def plan(self) -> Iterator[Data]:
        """The plan, written back as it is left."""
        with self.record(bundle.PLAN) as values:
            yield values

    def events(self, kind: str) -> list[Data]:
        """The journal's events of this kind, to be changed in place."""
        return [line["event"] for line in self.lines if line["event"]["kind"] == kind]

    def drop(self, is_dropped: Callable[[Data], bool]) -> None:
        """Leave out every event of which this is so."""
        self.lines = [line for line in self.lines if not is_dropped(line["event"])]

    def sealed(self, folder: Path) -> Path:
        """The whole bundle, without a contradiction that a program can mend."""
        self.mend()
        self.files[bundle.SIGNER] = to_json(keys.signer_record(self.key, "tester"))
        if self.is_judged:
            self.files[bundle.VERDICT] = judged(self.files)
        return seal(folder, self.files, self.key, spoiled=self.after)

    def mend(self) -> None:
        """Plan and journal as they name the other files and each other."""
        self._mend_plan()
        self._mend_journal()

    def _mend_plan(self) -> None:
        identity = json.loads(self.files[bundle.SYSTEM])["identity"]
        with self.plan() as plan:
            for name, file in DIGESTS.items():
                if file in self.files:
                    plan["digests"][name] = sha256(self.files[file])
            plan["digests"]["identity"] = sha256(rfc8785.dumps(identity))

    def _mend_journal(self) -> None:
        begin = self.lines[0]["event"]
        begin["plan"] = sha256(self.files[bundle.PLAN])
        begin["system"] = sha256(self.files[bundle.SYSTEM])
        written, last = [], begin["plan"]
        for number, line in enumerate(self.lines):
            data = rfc8785.dumps({**line, "seq": number, "prev": last})
            written.append(data + b"\n")
            last = hashlib.sha256(data).hexdigest()
        self.files[bundle.JOURNAL] = b"".join(written)


def forged(folder: Path) -> Forgery:
    """A forgery of the genuine run in this folder, in which nothing is changed yet."""
    files = {
        name: data
        for name, data in bundle.files_of(folder).items()
        if name in bundle.data_names([name])
    }
    lines = [json.loads(line) for line in files[bundle.JOURNAL].splitlines()]
    return Forgery(files=files, lines=lines)


def judged(files: Mapping[str, bytes]) -> bytes:
    """The verdict as the judge gives it; the one that was there where nobody can judge."""
    with suppress(BenchError, ArithmeticError, LookupError, TypeError, ValueError):
        bare = {name: data for name, data in files.items() if name != bundle.VERDICT}
        read = bundle.read_files(bare, complete=False)
        judge = Judge(
            plan=read.plan,
            criteria=read.criteria,
            baselines=read.baselines,
            peaks=read.peaks,
            qualified=read.qualified,
            system=read.system,
            order=read.order,
        )
        for line in read.lines:
            judge.take(line)
        return to_json(judge.verdict())
    return files[bundle.VERDICT]
