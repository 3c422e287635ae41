"""A vendor of devices for tests whose libraries do not outlive a fork, as far as it says."""

from faulty.vendor import Vendor


class Forkless(Vendor):
    name = "faulty.forkless"
    fork_safe = False
