"""Ranks of which one goes wrong, of a workload whose import spoils every fork of the process."""

from faulty.unfaithful import Unfaithful
from faulty.unforkable import Misbehaving  # noqa: F401 - by importing it no fork works

WORKLOAD = Unfaithful
