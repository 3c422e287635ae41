"""The child's first module: it imports nothing that computes, so it can say what does not import.

    python -m appliance.worker.entry PROGRAM [PARENT]    as child.py lists them

A torch that is there and cannot be imported is a fault of the software. No device has been used
when it shows, so a launch ends as `software` and not as a crash, and requests are answered by it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback

BEGAN_NS = time.monotonic_ns()  # before the imports that take long

from appliance import extras  # noqa: E402 - after the clock is read
from appliance.evidence.software_fault import NOT_INSTALLED  # noqa: E402 - the same
from appliance.ipc.channel import Link  # noqa: E402 - the same
from appliance.ipc.import_watch import uncollected  # noqa: E402 - the same
from appliance.ipc.messages import End, Hello  # noqa: E402 - the same
from appliance.records.json import adapter, to_json  # noqa: E402 - the same
from appliance.records.request import Answer, Lacking, LaunchSpec, Question  # noqa: E402 - the same


def main(arguments: list[str]) -> None:
    """Run one of the child's programs; a launch whose libraries do not import ends as `software`.

    So is a question answered; the other programs end with the exception. A request to stop that
    reaches every process of a job (SIGINT) is for the runner, which then ends its launches.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = {"describe": _answer, "launch": _end_launch}
    try:
        with uncollected():
            from appliance.worker import child  # noqa: PLC0415 - what may fail
    except MemoryError:
        raise
    except Exception as error:
        is_absent = str(error) == f"No module named '{extras.TORCH}'"
        if arguments[0] not in answers or is_absent:
            raise
        traceback.print_exc()
        answers[arguments[0]](_sentence(error))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # what a half-made import registered has no part in this
    child.main(arguments, BEGAN_NS)


def _sentence(error: Exception) -> str:
    what = " ".join(str(error).split())[:200]
    line = extras.line_for(getattr(error, "name", None) or extras.TORCH)
    return f"torch cannot be imported ({type(error).__name__}: {what}): {line} --upgrade"


def _answer(lack: str) -> None:
    """The answer to a question on stdin: every request lacks this."""
    question = adapter(Question).validate_json(sys.stdin.buffer.read())
    resolved = tuple(Lacking(lack=lack) for _ in question.requests)
    answer = Answer(descriptions=(), resolved=resolved, software={})
    sys.stdout.buffer.write(to_json(answer))


def _end_launch(lack: str) -> None:
    """The end of the launch on stdin, as its first and last message to the runner."""
    text = sys.stdin.buffer.read()
    if text:
        spec = adapter(LaunchSpec).validate_json(text)
        link = Link(spec.socket, Hello(launch=spec.launch, rank=0, token=spec.token))
        link.send(End(outcome="software", reason=NOT_INSTALLED, detail=lack, stage="load"))


if __name__ == "__main__":
    main(sys.argv[1:])
