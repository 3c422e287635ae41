"""The options that several verbs take, each declared once: its name, type, default and help.

The command line reads them from here field by field, and a verb takes them as one value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Self

import typer

from appliance.errors import UsageError
from appliance.planning.launch_constants import MOST_SESSIONS
from appliance.scheduling.allocation import MOST_MINUTES
from appliance.scheduling.hours import check_hours
from appliance.stress.kinds import KINDS, check_stress
from appliance.vendors.visibility import VENDOR_NAMES, vendor_of

FULL_SUITE = "acceptance"
"""What a run of accelerators makes where nobody names a suite."""
QUICK_SUITE, QUICK_MINUTES = "quick", 1
"""What --quick makes where nobody names a suite, and within how many minutes."""
SMALL_SUITE = "smoke"
"""What a run of processors makes where nobody names a suite."""
LONGEST_WAIT = 24 * 60
"""Minutes: a day."""
LONGEST_RUN = 10_000_000
"""Seconds: four months."""
IMAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}", re.ASCII)
"""What no shell and no engine takes for anything but an image."""
TIME_UNITS = {"s": 1, "m": 60, "h": 3600}
LONGEST_PAUSE = 30 * 24 * 3600
SIZE_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
LEAST_MEMORY = 6 * 2**20
"""What the engine's documentation of `--memory` calls the least value allowed."""
MOST_MEMORY = 2**50

SuiteArgument = Annotated[
    str | None, typer.Argument(metavar="SUITE", help="The same as --suite.", show_default=False)
]
VendorOption = Annotated[
    str | None,
    typer.Option(
        callback=vendor_of,
        help=f"cpu, {', '.join(f'{name} ({word})' for word, name in VENDOR_NAMES.items())}; by "
        "default the one that is detected.",
    ),
]
OutOption = Annotated[Path, typer.Option(help="Folder that gets out/<run id>.")]
DataOption = Annotated[Path | None, typer.Option(help="Folder with the data sets.")]
EngineOption = Annotated[
    str | None,
    typer.Option("--engine", "--socket", help="Socket of the container engine to use."),
]


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What a run is planned from; paths are of this machine.

    `suite` and `criteria` are names of shipped files or paths. `suite` None means "smoke" for
    processors and "acceptance" for accelerators, `criteria` None "functional" for processors and
    "accelerator" for accelerators, `baseline` None the shipped baselines,
    `data` None the usual places, `vendor` None the one that is detected, `minutes` and
    `hours` None as many as the suite takes.
    """

    suite: Annotated[
        str | None,
        typer.Option(
            help=f"Name of a suite, or the path of its TOML file; by default {FULL_SUITE} on "
            f"accelerators, {SMALL_SUITE} on processors."
        ),
    ] = None
    criteria: Annotated[
        str | None,
        typer.Option(help="Name or file; by default functional, or accelerator for accelerators."),
    ] = None
    vendor: VendorOption = None
    baseline: Annotated[
        Path | None,
        typer.Option(help="Baselines to compare with, made by `bench baseline create`."),
    ] = None
    order: Annotated[
        Path | None, typer.Option(help="The buyer's order, which the node is compared with.")
    ] = None
    data: DataOption = None
    sessions: Annotated[
        int | None,
        typer.Option(
            help=f"Parts of the run, 1 to {MOST_SESSIONS}, each begun anew; 1 by default."
        ),
    ] = None
    pause: Annotated[
        str | None,
        typer.Option(
            help="Time between two sessions, as in 4h (s, m or h); without it --resume begins the "
            "next one."
        ),
    ] = None

    minutes: Annotated[
        int | None,
        typer.Option(
            help="Run what of the suite tells most within so many minutes; the whole suite by "
            "default."
        ),
    ] = None
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help=f"What tells most within {QUICK_MINUTES} minute, functional only: the suite "
            f"{QUICK_SUITE} where none is named.",
        ),
    ] = False

    hours: Annotated[
        float | None,
        typer.Option(
            help="Hours that a suite of burn-in keeps each device at work, as 0.5 or 72; by "
            "default those of the suite."
        ),
    ] = None
    stress: Annotated[
        str | None,
        typer.Option(
            help=f"Load beside the products of a burn-in: all, or some of {', '.join(KINDS)} by "
            "commas; by default what the suite says."
        ),
    ] = None

    def __post_init__(self) -> None:
        """UsageError for a name that is empty, sessions that no run can have, and such times."""
        for option, listed in (("suite", "suites"), ("criteria", "criteria")):
            if getattr(self, option) == "":
                raise UsageError(f"--{option} is empty: `bench list {listed}` names what there is")
        if self.minutes is not None and not 1 <= self.minutes <= MOST_MINUTES:
            raise UsageError(f"--minutes is {self.minutes}: give a number from 1 to {MOST_MINUTES}")
        if self.quick and self.minutes is not None:
            raise UsageError(
                f"--quick is --minutes {QUICK_MINUTES}: leave one of --quick and --minutes out"
            )
        if self.hours is not None:
            check_hours(self.hours)
            if self.within_minutes is not None:
                raise UsageError("--hours and --minutes are both lengths of the run: give one")
        if self.stress is not None:
            check_stress(self.stress)
        if not 1 <= self.num_sessions <= MOST_SESSIONS:
            raise UsageError(
                f"--sessions is {self.num_sessions}: give a number from 1 to {MOST_SESSIONS}"
            )
        if self.pause_seconds is not None and self.num_sessions == 1:
            raise UsageError("--pause is the time between sessions: give --sessions 2 or more")

    @property
    def within_minutes(self) -> int | None:
        """How many minutes the plan may take; None where it takes what the suite takes."""
        return QUICK_MINUTES if self.quick else self.minutes

    @property
    def num_sessions(self) -> int:
        return 1 if self.sessions is None else self.sessions

    @property
    def pause_seconds(self) -> float | None:
        return None if self.pause is None else seconds_of(self.pause)

    def of_suite(self, name: str | None) -> Self:
        """The options with the suite that stands without --suite; UsageError where both stand."""
        if name is None:
            return self
        if self.suite not in (None, name):
            raise UsageError(f'the suite is named twice, "{name}" and "{self.suite}": name one')
        return replace(self, suite=name)

    def suite_for(self, torch_type: str) -> str:
        """The suite's name, for devices of this torch type."""
        if self.quick and self.suite is None:
            return QUICK_SUITE
        return self.suite or (SMALL_SUITE if torch_type == "cpu" else FULL_SUITE)


@dataclass(frozen=True, kw_only=True)
class RunOptions(PlanOptions):
    """What a run is made from, or goes on with: `resume` is the folder of an interrupted run.

    Without `challenge` the node draws the run's seed; one whose attempts are counted needs the
    buyer's `receipt` before the first launch ("-" reads it from stdin). `redact`: no host name and
    no address of this machine is written.
    """

    challenge: Annotated[
        Path | None, typer.Option(help="The buyer's challenge, from which all seeds derive.")
    ] = None
    out: OutOption = Path("out")
    receipt: Annotated[
        Path | None,
        typer.Option(
            help="The buyer's receipt for the run of --resume: a file, or - to type or scan it."
        ),
    ] = None
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the interrupted run in this folder.")
    ] = None
    redact: Annotated[
        bool, typer.Option("--redact", help="Write no host name and no address of this machine.")
    ] = False
    wait_idle: Annotated[
        int | None,
        typer.Option(help="Wait so many minutes at most until nobody else uses the node."),
    ] = None
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="Folder that the disk stress of a burn-in writes to, on the disk to load; by "
            "default the run's own."
        ),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the verdict.")] = False

    def __post_init__(self) -> None:
        """UsageError for what no plan can have, and for a wait that is none."""
        PlanOptions.__post_init__(self)
        if self.wait_idle is not None and not 1 <= self.wait_idle <= LONGEST_WAIT:
            raise UsageError(
                f"--wait-idle is {self.wait_idle}: give minutes, from 1 to {LONGEST_WAIT}"
            )

    def refuse_changes(self, option: str, *names: str) -> None:
        """UsageError if one of these options is set, which `option` says was fixed before."""
        for name in names:
            if getattr(self, name) not in (None, False):
                raise UsageError(
                    f"--{name} was fixed when the run began: leave it out with {option}, or start "
                    "a new run"
                )


@dataclass(frozen=True, kw_only=True)
class StartOptions(RunOptions):
    """A run in a container, and how the container is started; None means the engine's default."""

    image: Annotated[
        str | None, typer.Option(help="Image to start; bench-VENDOR if none is named.")
    ] = None
    engine: EngineOption = None
    memory: Annotated[
        str | None, typer.Option(help="Memory that the container may use, as in 64g.")
    ] = None
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which the run is interrupted.")
    ] = None
    relax_seccomp: Annotated[
        bool, typer.Option("--relax-seccomp", help="Start without the engine's system call filter.")
    ] = False

    def __post_init__(self) -> None:
        """UsageError for values that no engine takes."""
        RunOptions.__post_init__(self)
        if self.timeout is not None and not 0 < self.timeout <= LONGEST_RUN:
            raise UsageError(
                f"--timeout is {self.timeout:g}: give seconds, above 0 and at most {LONGEST_RUN}"
            )
        if self.image and not IMAGE_NAME.fullmatch(self.image):
            raise UsageError(f'--image is "{self.image}": write NAME, NAME:TAG or NAME@sha256:...')
        if self.memory is not None:
            bytes_of(self.memory)


def seconds_of(text: str) -> float:
    """Seconds of a time such as 90s, 30m or 4h. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smh])", text.strip().lower())
    if match is None:
        raise UsageError(f'--pause is "{text}": give a number with s, m or h, as in 4h')
    seconds = float(match[1]) * TIME_UNITS[match[2]]
    if seconds > LONGEST_PAUSE:
        raise UsageError(f'--pause is "{text}": give at most {LONGEST_PAUSE // 3600} h')
    return seconds


def bytes_of(text: str) -> int:
    """Bytes of a size such as 512m or 16g (units of 1024). Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,15})([bkmgt]?)", text.strip().lower())
    if match is None or int(match[1]) == 0:
        raise UsageError(f'--memory is "{text}": give an integer with k, m, g or t, as in 64g')
    size = int(match[1]) * SIZE_UNITS[match[2]]
    if not LEAST_MEMORY <= size < MOST_MEMORY:
        raise UsageError(f'--memory is "{text}": give at least 6m, and less than 1024t')
    return size
