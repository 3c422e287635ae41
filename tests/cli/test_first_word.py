"""On a terminal each verb says what it is at before it imports what that takes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest
from support.program import ROOT

VERBS = [
    (("doctor",), "looking at this machine", "appliance.verbs.doctor"),
    (("start", "--dry-run"), "looking at the container engine", "appliance.verbs.start"),
    (("probe",), "probing this node", "appliance.probe.node"),
    (("plan", "smoke"), "probing this node", "appliance.verbs.preparation"),
    (("qualify", "--out", "out"), "qualifying: probing", "appliance.verbs.qualify"),
]


def shown_until(words: tuple[str, ...], end: str, term: str = "xterm") -> str:
    """What a verb wrote to a terminal, with the modules that it imported, until one of them."""
    terminal, own = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "appliance", *words],
        stdin=own,
        stdout=own,
        stderr=own,
        cwd=ROOT,
        env=os.environ | {"TERM": term},
        start_new_session=True,
    )
    os.close(own)
    shown = b""
    try:
        with suppress(OSError):  # what a terminal reads as, once nobody writes to it
            while end.encode() not in shown:
                shown += os.read(terminal, 4096)
    finally:
        child.kill()
        child.wait()
        os.close(terminal)
    return shown.decode(errors="replace")


def test_a_terminal_that_moves_nothing_has_its_first_word_too() -> None:
    words, said, module = VERBS[0]
    assert said in shown_until(words, f"{module}\r\n", "dumb").partition(f"{module}\r\n")[0]


@pytest.mark.parametrize(("words", "said", "module"), VERBS)
def test_first_word_comes_before_the_imports(
    words: tuple[str, ...], said: str, module: str
) -> None:
    before, _, _ = shown_until(words, f"{module}\r\n").partition(f"{module}\r\n")
    assert said in before
    assert "numpy" not in before.partition(said)[0]
