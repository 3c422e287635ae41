"""The verb `start`: a run in a container from the host, signed outside, verified and reported.

What is missing is reported before anything is started. The run is made unsigned inside, where there
is no key; the pages are rendered and signed out here, and the bundle is verified as anyone
would. A run that was cut short (a person, the time limit, an engine or memory that was not
enough) leaves its folder, and is gone on with by --resume.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from cryptography.hazmat.primitives.serialization import Encoding

from appliance.container import preflight
from appliance.container.container_options import (
    INPUTS,
    OUT,
    RELAXED,
    Bind,
    Container,
    Engine,
    Image,
    line,
    options,
)
from appliance.container.engine_client import SCHEME, ContainerExit, EngineClient, address, opened
from appliance.errors import (
    ApplianceError,
    BenchError,
    EvidenceError,
    OutputError,
    ReceiptAwaited,
    RunInterrupted,
    SessionsLeft,
    UsageError,
)
from appliance.evidence.budget import Budget
from appliance.evidence.journal_index import budget_of
from appliance.ipc import confined_reader
from appliance.linux.sysfs import Tree
from appliance.records.json import from_json
from appliance.records.system import System
from appliance.records.verdict import EXIT_CODES, Verdict
from appliance.roles import Role
from appliance.signing.keys import Key
from appliance.storage import bundle, limits, plain_files
from appliance.storage.plain_files import Folder
from appliance.verbs import publish
from appliance.verbs.run_options import StartOptions, bytes_of
from appliance.verification import verify
from appliance.verification.terms import Terms
from appliance.verification.verify import Verification

R = TypeVar("R")
JUDGED = tuple(EXIT_CODES.values())
FOLDERS = {"data", "scratch"}
"""Options that name a folder."""
"""Exit codes of a run that came to a verdict."""
UNKNOWN_ENGINE = Engine(url=f"{SCHEME}/var/run/docker.sock")
"""What is taken for the engine where none answers and only the line is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The container that would be started, and a sentence for each thing that is missing."""

    container: Container
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run that was made in a container, judged, signed and verified.

    `budget` is what its time went to, None of a bundle that does not verify or takes long to read.
    """

    folder: Path
    verdict: Verdict
    verification: Verification
    container: Container
    budget: Budget | None = None


def dry_line(options: StartOptions, tree: Tree | None = None) -> tuple[str, tuple[str, ...]]:
    """The `docker run` line of the run, and what is missing; only the engine is queried.

    The run is left unsigned by it.
    """
    with ExitStack() as stack:
        _, prepared = _prepare(_resumed(options), tree or Tree(), stack)
        return line(prepared.container), prepared.missing


def start(
    options: StartOptions,
    key: Key,
    role: Role,
    *,
    say: Callable[[str], None],
    write: Callable[[bytes], None],
    tree: Tree | None = None,
) -> Started:
    """Make the run in a container, sign it here, and verify it.

    Raises UsageError for what is missing, RunInterrupted for a run that was stopped, and what
    became of the run inside as the errors of its exit code.
    """
    publish.require_renderer()
    options = _resumed(options)
    with ExitStack() as stack:
        engine, prepared = _prepare(options, tree or Tree(), stack)
        if prepared.missing or engine is None:
            raise UsageError("; ".join(prepared.missing))
        if options.resume is None:
            _make(options.out)
        ended = engine.run(prepared.container, write=write, say=say, timeout=options.timeout)
    folder = options.resume or _folder(options.out, ended.container.name)
    if ended.exit_code not in JUDGED or folder is None:
        raise fault(ended, folder)
    if not (folder / bundle.JOURNAL).exists():
        raise ReceiptAwaited(
            f"the run is planned: begin it with `bench start --resume {folder} --receipt FILE`"
        )
    if not (folder / bundle.VERDICT).exists():
        raise SessionsLeft(
            f"a session has ended: begin the next one with `bench start --resume {folder}`"
        )
    if left := publish.sign(folder, key, role, follow=False):
        say(left)
    _hand_over(folder)
    return _verified(folder, key, ended.container)


def to_document(started: Started) -> dict[str, object]:
    """The one JSON document of the verb."""
    container, image = started.container, started.container.image
    return {
        "folder": str(started.folder),
        "verdict": started.verification.verdict,
        "exit_code": started.verification.exit_code,
        "signer": started.verification.signer,
        "faults": list(started.verification.faults),
        "image": {
            "name": image.name,
            "id": image.id,
            "references": list(image.references),
            "layers": image.layers,
        },
        "engine": {
            "url": container.engine.url,
            "product": container.engine.product,
            "version": container.engine.version,
            "storage": container.engine.storage,
        },
        "container": container.name,
        "options": list(options(container)),
        "locked_memory": "unlimited" if container.locks_memory else "limited",
    }


# ------------------------------------------------------------------ before


def _resumed(options: StartOptions) -> StartOptions:
    """The options; for a run that goes on, with the vendor, image and limits that it had."""
    folder = options.resume
    if folder is None:
        return options
    folder = folder.absolute()
    try:
        data = plain_files.read(folder / bundle.SYSTEM, limits.of_name(bundle.SYSTEM))
    except OSError as error:
        raise UsageError(
            f"{folder} holds no run that can go on ({error.strerror}): name out/<run id>"
        ) from None
    if (folder / bundle.REPORT).exists():
        raise UsageError(f"{folder} is finished and signed; start a new run instead")
    system = _read(System, data, bundle.SYSTEM)
    fact = system.conditions.facts.get("container_options")
    before = str(fact.value) if fact is not None and fact.value else ""
    memory = re.search(r"--memory (\d+)", before)
    image = system.identity.host.get("image")
    devices = system.identity.devices
    return replace(
        options,
        vendor=options.vendor or (devices[0].vendor if devices else None),
        image=options.image or (str(image.value) if image is not None and image.value else None),
        out=folder.parent,
        resume=folder,
        relax_seccomp=options.relax_seccomp or RELAXED in before,
        memory=options.memory or (memory[1] if memory else None),
    )


def _prepare(
    options: StartOptions, tree: Tree, stack: ExitStack
) -> tuple[EngineClient | None, Prepared]:
    vendor = preflight.choose(tree, options.vendor)
    engine, unreachable = _opened(options, stack)
    facts = UNKNOWN_ENGINE if engine is None else engine.engine
    out = options.out.absolute().resolve()
    user = preflight.run_user(out, facts)
    devices, lacks = preflight.devices(tree, vendor, facts)
    if engine is None:  # what it could pass is not known, only what the host has
        lacks = lacks[:1] if devices.count == 0 else ()
    words, inputs = _words(options, vendor)
    image, absent = _image(engine, options.image or preflight.image_of(vendor), vendor)
    container = Container(
        id=secrets.token_hex(6),
        image=image,
        words=words,
        user=user,
        binds=(Bind(source=str(out), target=OUT, is_writable=True), *inputs),
        devices=devices,
        engine=facts,
        memory_bytes=None if options.memory is None else bytes_of(options.memory),
        relaxes_seccomp=options.relax_seccomp,
    )
    missing = (*lacks, *unreachable, *absent, *_missing_files(out, inputs, user))
    missing = (*missing, *_busy(options, engine, out))
    return engine, Prepared(container=container, missing=missing)


def _opened(options: StartOptions, stack: ExitStack) -> tuple[EngineClient | None, tuple[str, ...]]:
    """The engine, open as long as the stack is; or why there is none."""
    try:
        return stack.enter_context(opened(address(options.engine, os.environ))), ()
    except UsageError as error:
        return None, (str(error),)


def _missing_files(out: Path, inputs: Sequence[Bind], user: str) -> Iterator[str]:
    yield from preflight.missing_out(out)
    yield from preflight.missing_files([Path(bind.source) for bind in inputs], user)
    yield from _misplaced(inputs)


def _image(engine: EngineClient | None, name: str, vendor: str) -> tuple[Image, tuple[str, ...]]:
    if engine is None:
        return Image(name=name), ()
    try:
        return engine.image(name, vendor), ()
    except UsageError as error:
        return Image(name=name), (str(error),)


def _busy(options: StartOptions, engine: EngineClient | None, out: Path) -> Iterator[str]:
    """A run that goes on must not be going on already."""
    name = engine.running_in(out) if engine is not None and options.resume is not None else None
    if name is not None:
        yield f"the container {name} still writes into {out}: wait for it, or `docker stop {name}`"


def _words(options: StartOptions, vendor: str) -> tuple[tuple[str, ...], tuple[Bind, ...]]:
    """The command inside, and the files and folders of the host that it names."""
    binds: list[Bind] = []

    def placed(option: str, path: Path, *, is_writable: bool = False) -> tuple[str, str]:
        source = path.absolute().resolve()
        target = f"{INPUTS}/{option}/{source.name}"
        binds.append(Bind(source=str(source), target=target, is_writable=is_writable))
        return f"--{option}", target

    words = ["run", *(["--quiet"] if options.quiet else [])]
    words += ["--redact"] if options.redact else []
    if options.resume is not None:
        words += ["--resume", f"{OUT}/{options.resume.name}"]
    else:
        words += ["--vendor", vendor, *(["--quick"] if options.quick else [])]
        named = {"suite": options.suite, "criteria": options.criteria}
        for option, text in named.items():
            if text is None:  # the container knows what is usual for its devices
                continue
            words += placed(option, Path(text)) if _is_path(text) else (f"--{option}", text)
        parts = {
            "sessions": options.sessions,
            "pause": options.pause,
            "minutes": options.minutes,
            "hours": options.hours,
            "stress": options.stress,
        }
        for option, number in parts.items():
            words += () if number is None else (f"--{option}", str(number))
        for option, path in {"baseline": options.baseline, "challenge": options.challenge}.items():
            words += placed(option, path) if path is not None else ()
    others = {"order": options.order, "data": options.data, "receipt": options.receipt}
    for option, path in others.items():
        words += placed(option, path) if path is not None else ()
    if options.scratch is not None:
        words += placed("scratch", options.scratch, is_writable=True)
    return tuple(words), tuple(binds)


def _misplaced(inputs: Iterable[Bind]) -> Iterator[str]:
    """A sentence for each folder in the place of a file, and the other way round."""
    for bind in inputs:
        option, source = Path(bind.target).parent.name, Path(bind.source)
        is_folder = option in FOLDERS
        if source.exists() and source.is_dir() is not is_folder:
            is_now, wanted = ("a file", "folder") if is_folder else ("a folder", "file")
            yield f"{source} is {is_now}: name a {wanted} with --{option}"


def _is_path(text: str) -> bool:
    """As the catalogue reads names."""
    return "/" in text or text.endswith(".toml")


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{out} cannot be made ({error.strerror})") from None


# ------------------------------------------------------------------ after


def _folder(out: Path, name: str) -> Path | None:
    """The folder of the run that the container of this name began, if it came that far."""
    return next((path for path in _folders(out) if _container_of(path) == name), None)


def _folders(out: Path) -> Iterator[Path]:
    """Those of runs; the container can write there, so a link is none."""
    for path in out.iterdir():
        if not path.is_symlink() and (path / bundle.SYSTEM).is_file():
            yield path


def _container_of(folder: Path) -> str | None:
    try:
        with Folder.at(folder, follow=False) as opened_folder:
            data = opened_folder.read(bundle.SYSTEM, limits.of_name(bundle.SYSTEM))
        fact = _read(System, data, bundle.SYSTEM).conditions.facts.get("container_name")
    except (OSError, BenchError):  # another's, or not whole
        return None
    return None if fact is None else str(fact.value)


def fault(ended: ContainerExit, folder: Path | None) -> BenchError:
    """The error that says why a run came to no verdict, and how it goes on."""
    has_journal = folder is not None and (folder / bundle.JOURNAL).is_file()
    next_step = (
        f"everything recorded stays: go on by `bench start --resume {folder}`"
        if has_journal
        else "it had not begun, so there is nothing to go on with"
    )
    ends = {"stopped": "stopped", "timed_out": "the time limit (--timeout) was reached"}
    if ended.reason == "engine_lost":
        return ApplianceError(
            f"the engine at {ended.container.engine.url} went away during the run "
            f"({ended.detail}); {next_step}, once it answers again and {ended.container.name} no "
            "longer runs"
        )
    if ended.reason in ends:
        return RunInterrupted(f"{ends[ended.reason]}; {next_step}")
    if ended.ran_out_of_memory:
        return ApplianceError(f"the container {_starved(ended.container)}; {next_step}")
    return _by_code(ended.exit_code, next_step if has_journal else "")


def _by_code(code: int | None, next_step: str) -> BenchError:
    """The error for a container that ended by itself; the run has printed why, above."""
    hint = f"; {next_step}" if next_step else ""
    if code == RunInterrupted.exit_code:
        return RunInterrupted(f"the run was stopped inside its container{hint}")
    if code == UsageError.exit_code:
        return UsageError(next_step)  # the run itself has printed what is to be fixed
    if code in JUDGED:
        return ApplianceError("the run left no folder of its own: its image is of another version")
    return ApplianceError(f"the container ended with exit code {code}{hint}")


def _starved(container: Container) -> str:
    if container.memory_bytes is None:
        return "was ended by the kernel, because this host ran out of memory"
    size = container.memory_bytes / 2**20
    return f"was ended by the kernel at its memory limit of {size:.0f} MiB: raise --memory"


def _hand_over(folder: Path) -> None:
    """Give the files that root made to the owner of the folder, who may change names meanwhile."""
    if os.geteuid() != 0:
        return
    with bundle.opened(folder, follow=False) as opened:
        owner = os.fstat(opened.descriptor)
        for name in bundle.FINISHED_FILES if owner.st_uid != 0 else ():
            with suppress(FileNotFoundError):
                _give(opened, name, owner)


def _give(folder: Folder, name: str, owner: os.stat_result) -> None:
    """Change the owner of a plain file of root's that has this one name."""
    try:
        descriptor = folder.open(name)
    except OSError as error:
        raise EvidenceError(f"{folder.path / name} cannot be read: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if (status.st_uid, status.st_nlink) == (0, 1):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    finally:
        os.close(descriptor)


def _read(kind: type[R], data: bytes, name: str) -> R:
    """A record that the container wrote, read in a child; EvidenceError where it is none."""
    return confined_reader.record(
        kind, name, lambda: from_json(kind, data, name=name), death=EvidenceError
    )


def _verified(folder: Path, key: Key, container: Container) -> Started:
    """Verify the bundle as its signer would: his own certificate is the one that he trusts."""
    verification, files = verify.read_confined(
        folder, Terms(trusted=[key.certificate.public_bytes(Encoding.PEM)])
    )
    if bundle.VERDICT not in files:
        raise EvidenceError(f"{folder} does not verify: {verification.faults[0]}")
    return Started(
        folder=folder,
        verdict=_read(Verdict, files[bundle.VERDICT], bundle.VERDICT),
        verification=verification,
        container=container,
        budget=None if verification.faults else _budget(files),
    )


def _budget(files: Mapping[str, bytes]) -> Budget | None:
    """What the time went to, summed up in a child as anything that the container wrote is."""

    def work() -> bytes:
        budget = budget_of(files[bundle.PLAN], files[bundle.JOURNAL])
        return json.dumps(dict(budget.seconds)).encode()

    try:
        known = confined_reader.content(bundle.JOURNAL, work, death=EvidenceError)
    except EvidenceError:
        return None
    return Budget(seconds={name: float(seconds) for name, seconds in json.loads(known).items()})
