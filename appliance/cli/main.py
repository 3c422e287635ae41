"""The program: the verbs joined, and the one place where errors become messages and exit codes.

Text for people goes to stderr; with `--json` one JSON document goes to stdout. Every verb imports
what it needs when it is called, so that `bench --help` is quick and `verify` needs no torch. Exit
codes: 0 accepted or done, 1 rejected, 2 usage or configuration, 3 inconclusive, 4 evidence does
not verify, 5 the appliance failed, 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from appliance.cli import baselines, challenges, evidence, flow, host, keys, listing, program
from appliance.cli.fleet import collecting, jobs, planning, standing
from appliance.cli.output import NAME, answer, print_json, say
from appliance.errors import ApplianceError, BenchError, OutputError, RunInterrupted, UsageError

Verb = Callable[..., None]

VERBS: Mapping[str, Verb] = {
    "accept": flow.accept,
    "run": flow.run,
    "start": host.start,
    "probe": host.probe,
    "plan": flow.plan,
    "watch": flow.watch,
    "report": evidence.report,
    "sign": evidence.sign,
    "verify": evidence.verify,
    "compare": evidence.compare,
    "qualify": host.qualify,
    "selftest": host.selftest,
    "doctor": host.doctor,
}
GROUPS: Mapping[str, tuple[str, Mapping[str, Verb]]] = {
    "keys": ("Make and show signing keys.", {"create": keys.create, "show": keys.show}),
    "challenge": (
        "Draw a challenge, begin and close its attempts, and show its ledger.",
        {
            "create": challenges.create,
            "begin": challenges.begin,
            "close": challenges.close,
            "ledger": challenges.ledger,
        },
    ),
    "data": (
        "Fetch, verify and list data sets.",
        {"list": listing.available, "fetch": listing.fetch, "verify": listing.verify},
    ),
    "list": (
        "List suites, workloads or criteria.",
        {
            "suites": listing.suites,
            "criteria": listing.criteria,
            "workloads": listing.workloads,
        },
    ),
    "baseline": (
        "Make and check baselines of signed runs.",
        {"create": baselines.create, "check": baselines.check, "plan": baselines.plan},
    ),
    "fleet": (
        "Accept many nodes: plan a campaign, submit it, see where it stands, collect and show it.",
        {
            "plan": planning.plan,
            "submit": jobs.submit,
            "status": standing.status,
            "resume": jobs.resume,
            "cancel": jobs.cancel,
            "gate": standing.gate,
            "run": jobs.run,
            "collect": collecting.collect,
            "site": collecting.site,
            "report": collecting.report,
        },
    ),
}


def _joined() -> typer.Typer:
    joined = typer.Typer(
        name="bench",
        cls=program.Verbs,
        help="Hardware acceptance for AI nodes: probe, run, judge, and leave a signed report.",
        context_settings=program.CONTEXT,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    joined.callback()(_root)
    for name, verb in VERBS.items():
        joined.command(name, cls=program.Verb, context_settings=program.CONTEXT)(verb)
    for name, (summary, verbs) in GROUPS.items():
        group = typer.Typer(help=summary, cls=program.Verbs, context_settings=program.CONTEXT)
        for word, verb in verbs.items():
            group.command(word, cls=program.Verb, context_settings=program.CONTEXT)(verb)
        joined.add_typer(group, name=name)
    return joined


def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=program.version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Hardware acceptance for AI nodes: probe, run, judge, and leave a signed report."""


app = _joined()


def main() -> NoReturn:
    """Run a command and leave with its documented exit code."""
    try:
        # blocked by who started us (scripts/entry.py), as an interpreter that loads dies of it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = _called()
    except typer.Exit as done:
        code = done.exit_code
    except BenchError as error:
        code = _failed(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = _failed("stopped", RunInterrupted.exit_code)
    except Exception as error:  # noqa: BLE001 - no traceback reaches a user
        code = _exit_code(error)
    raise SystemExit(code if isinstance(code, int) else 0)


def _called() -> object:
    """What the verb returns; a command line that asks for help alone is answered at once."""
    program.check_completion(sys.argv[1:])
    text = program.help_text(typer.main.get_command(app), sys.argv[1:])
    if text is None:
        return app(prog_name=NAME, standalone_mode=False)
    answer(text)
    return 0


def _failed(sentence: str, code: int) -> int:
    """The exit code of what could not be done, with its sentence, and as JSON where asked for.

    The code stands where nobody can be told: the interpreter's own, 1, means REJECTED.
    """
    if sentence:  # a run inside a container has reported it already
        with suppress(OSError):
            say(f"bench: {sentence}")
        if program.wants_json():
            with suppress(OutputError):
                print_json({"error": sentence, "exit_code": code})
    return code


def _exit_code(error: Exception) -> int:
    """2 for a wrong option or name, which is reported; 5 for what else is the appliance's fault."""
    if callable(getattr(error, "show", None)):  # the option parser's own errors
        return _failed(program.sentence(error), int(getattr(error, "exit_code", 2)))
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return _failed(f"{error.filename}: {error.strerror}; name another", UsageError.exit_code)
    if isinstance(error, OSError) and program.INSTALL in sys.argv[1:]:
        what = (
            f"{error.filename} cannot be written ({error.strerror}): copy what "
            f"`{NAME} --show-completion` prints to where your shell looks"
        )
        return _failed(what, UsageError.exit_code)
    if os.environ.get("BENCH_DEBUG"):
        traceback.print_exception(error)
    what = (
        f"the appliance itself failed ({type(error).__name__}: {error}); "
        "set BENCH_DEBUG=1 to see where, and report it"
    )
    return _failed(what, ApplianceError.exit_code)


if __name__ == "__main__":
    main()
