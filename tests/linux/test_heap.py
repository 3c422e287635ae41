"""Memory that a process keeps when it is free."""

import subprocess
import sys

from support.program import ROOT

PROGRAM = """
import resource, sys
from appliance.linux import heap
if sys.argv[1:]:
    assert heap.keep()
for number in range(11):
    pieces = [b"x" * 2**23 for _ in range(4)]
    del pieces
    if number == 0:
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun)
"""


def num_faults(*arguments: str) -> int:
    """Pages that are mapped while 32 MiB are taken and dropped for the second to eleventh time."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)


def test_pages_of_what_was_dropped_are_not_mapped_anew() -> None:
    assert num_faults() > 10 * 2**25 // 4096 // 2
    assert num_faults("keep") < 2**25 // 4096 // 2
