"""A container that has the run's folder, and swaps names in it while the host writes there.

It is root inside, as an image of somebody else's may be, and puts links to a file of the host under
every name that `report`, `sign` and the host's side of `start` write, makes names hard links of
each other, and removes them. Nothing outside of the folder is written, given away or read out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest
from support.bundles import files_of, healthy, html, pdf
from support.program import called
from support.started_images import mounted
from support.untouched import untouched

from appliance.errors import BenchError
from appliance.signing import keys
from appliance.storage import bundle
from appliance.verbs import publish, start

pytestmark = pytest.mark.container
KEPT = b"a secret of the host's own"
OWNER = 12_345
WRITTEN = (bundle.SIGNER, bundle.STATEMENT, *bundle.RENDERINGS, bundle.REPORT)
SWAPPED = (*WRITTEN, bundle.ORDER, bundle.CHALLENGE, bundle.LOGS)
ROUNDS = 4
CODES = {0, 2, 4}
"""Done; the folder cannot be written or has no such run; what stands there does not verify."""
SWAPS = r"""
use strict; use warnings;
my ($victim, @names) = @ARGV;
chdir "/out" or die; $| = 1; print "begun\n";
for (my $turn = 0; ; $turn++) {
    for my $name (@names, glob(".unfinished-*")) {
        if ($turn % 3 == 0) { symlink($victim, "$name.link"); rename("$name.link", $name); }
        elsif ($turn % 3 == 1) { link("plan.json", "$name.link"); rename("$name.link", $name); }
        unlink($name);
    }
    select(undef, undef, undef, 0.002);  # so that what is written is there at times
}
"""


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file of the host, which must be as it was."""
    with untouched(tmp_path, KEPT) as path:
        yield path


@contextmanager
def racing(engine: docker.DockerClient, image: str, run: Path, victim: Path) -> Iterator[None]:
    """The container, once it swaps names."""
    racer = engine.containers.run(
        image,
        ["perl", "-e", SWAPS, str(victim), *SWAPPED],
        volumes=mounted(run),
        network_mode="none",
        detach=True,
    )
    try:
        for _ in range(6000):
            racer.reload()
            if racer.logs().startswith(b"begun") or racer.status == "exited":
                break
            time.sleep(0.1)
        assert racer.logs().startswith(b"begun"), racer.logs()
        yield
        racer.reload()
        assert racer.status == "running", racer.logs()
    finally:
        racer.remove(force=True)


def made(run: Path) -> Mapping[str, bytes]:
    """An unsigned run in a folder that belongs to nobody here, as a container's does."""
    files = files_of(healthy(), keys.development_key())
    for name, data in files.items():
        if name not in WRITTEN:
            bundle.write(run / name, data)
    os.chown(run, OWNER, OWNER)
    return files


def handed_over(run: Path) -> tuple[int, str]:
    """Code and sentence of `start` on the host, as it gives its files to the folder's owner."""
    try:
        start._hand_over(run)
    except BenchError as error:
        return error.exit_code, str(error)
    return 0, ""


def test_a_container_that_races_the_host_has_nothing_else_written_or_read_out(
    engine: docker.DockerClient,
    base: str,
    victim: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pages(_: bundle.Bundle, carried: Mapping[str, bytes]) -> dict[str, bytes]:
        return {bundle.HTML: html(carried), bundle.PDF: pdf(carried)}

    monkeypatch.setattr(publish, "_rendered", pages)  # quick ones, so that there are many
    run = tmp_path / "run"
    made(run)
    seen: set[int] = set()
    with racing(engine, base, run, victim):
        for _ in range(ROUNDS):
            for verb in ("report", "sign", "verify"):
                done = called(verb, str(run))
                seen.add(done.returncode)
                assert "Traceback" not in done.stderr
                assert KEPT.decode() not in done.stderr + done.stdout
            code, sentence = handed_over(run)
            seen.add(code)
            assert KEPT.decode() not in sentence
    assert seen <= CODES, seen
    for path in run.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert KEPT not in path.read_bytes(), path
