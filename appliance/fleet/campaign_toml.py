"""The file that a person writes for a campaign: what to accept by, how often, how to start it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from appliance.challenge.campaign import NAME, Launcher, LauncherKind, RetestRule
from appliance.errors import UsageError
from appliance.fleet.risk import MOST_RETESTS
from appliance.planning.launch_constants import MOST_SESSIONS
from appliance.records.json import FiniteFloat, Record, SafeInt
from appliance.storage import input_file, toml_file

MOST_CONCURRENT = 10_000
LONGEST_DAYS = 366
LONGEST_MINUTES = 60 * 24 * 14
MOST_RETRIES = 9
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)
"""A reservation, a partition or a vendor: an option's word."""
_IMAGE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9._/:@#+-]{0,254}", re.ASCII)
_PATH = re.compile(r"[A-Za-z0-9/._+-]{1,255}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherTable(Record):
    """[launcher]: how a job starts its run; see `Launcher`."""

    kind: LauncherKind = "bench"
    program: str = "bench"
    image: str = ""
    vendor: str = ""
    data: str = ""
    key: str = ""
    certificate: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskTable(Record):
    """[risk]: a wrong rejection of one node in one run, and how many the fleet may have."""

    rejection: FiniteFloat | None = None
    most_expected: FiniteFloat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestTable(Record):
    """[retest]: how often a rejected node runs again, and in how many sessions each time."""

    retests: SafeInt = 1
    sessions: SafeInt = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignFile(Record):
    """campaign.toml: names or paths of suite, criteria and order, as the command line takes them.

    `days` is how long the campaign's challenges last, `minutes` a job's time limit.
    """

    schema: Literal["bench/campaign-file/1"] = "bench/campaign-file/1"
    name: str
    suite: str
    criteria: str
    order: str | None = None
    sessions: SafeInt = 1
    pause: str = "0s"
    concurrency: SafeInt = 32
    minutes: SafeInt = 240
    days: FiniteFloat = 28.0
    reservation: str = ""
    partition: str = ""
    retries: SafeInt = 1
    retest: RetestTable = field(default_factory=RetestTable)
    risk: RiskTable = field(default_factory=RiskTable)
    launcher: LauncherTable = field(default_factory=LauncherTable)

    @property
    def retest_rule(self) -> RetestRule:
        return RetestRule(retests=self.retest.retests, sessions=self.retest.sessions)

    @property
    def launch(self) -> Launcher:
        table = self.launcher
        return Launcher(
            kind=table.kind,
            program=table.program,
            image=table.image,
            vendor=table.vendor,
            data=table.data,
            key=table.key,
            certificate=table.certificate,
        )


def read(path: Path) -> CampaignFile:
    """A campaign's file; UsageError names the key that is wrong and what it may be."""
    data = input_file.read(path, what="campaign file")
    campaign = toml_file.parse(CampaignFile, data, str(path))
    name = str(path)
    if not NAME.fullmatch(campaign.name):
        raise UsageError(
            f'{name}: key "name" must have lower-case letters, digits and dashes, at most 40'
        )
    _check_counts(campaign, name)
    _check_words(campaign, name)
    _check_launcher(campaign.launcher, name)
    return campaign


def _check_counts(campaign: CampaignFile, name: str) -> None:
    for key, value, least, most in (
        ("sessions", campaign.sessions, 1, MOST_SESSIONS),
        ("sessions of retest", campaign.retest.sessions, 1, MOST_SESSIONS),
        ("retests of retest", campaign.retest.retests, 0, MOST_RETESTS),
        ("concurrency", campaign.concurrency, 1, MOST_CONCURRENT),
        ("minutes", campaign.minutes, 1, LONGEST_MINUTES),
        ("retries", campaign.retries, 0, MOST_RETRIES),
    ):
        if not least <= value <= most:
            raise UsageError(f"{name}: {key} is {value}; it must be {least} to {most}")
    if not 0 < campaign.days <= LONGEST_DAYS:
        raise UsageError(
            f"{name}: days is {campaign.days:g}; it must be above 0 and at most {LONGEST_DAYS}"
        )


def _check_words(campaign: CampaignFile, name: str) -> None:
    for key in ("reservation", "partition"):
        value = getattr(campaign, key)
        if value and not _WORD.fullmatch(value):
            raise UsageError(f'{name}: key "{key}" is no name that Slurm takes: "{value}"')
    if not re.fullmatch(r"[0-9]{1,6}[smh]", campaign.pause):
        raise UsageError(f'{name}: key "pause" must be a time as in 90s, 30m or 4h')


def _check_launcher(launcher: LauncherTable, name: str) -> None:
    for key, pattern in (
        ("program", _PATH),
        ("image", _IMAGE),
        ("vendor", _WORD),
        ("data", _PATH),
        ("key", _PATH),
        ("certificate", _PATH),
    ):
        value = getattr(launcher, key)
        if value and (not pattern.fullmatch(value) or value.startswith("-")):
            raise UsageError(
                f'{name}: key "{key}" of launcher has characters that no shell may see: "{value}"'
            )
    if not launcher.program:
        raise UsageError(f'{name}: key "program" of launcher is empty: name bench on the nodes')
    if bool(launcher.image) == (launcher.kind == "bench"):
        raise UsageError(
            f'{name}: key "image" of launcher goes with the kinds docker and pyxis, and with them '
            "alone"
        )
    if bool(launcher.key) != bool(launcher.certificate):
        raise UsageError(f'{name}: "key" and "certificate" of launcher go together')
