"""The ranks of many tensors, by a workload whose import spoils every fork of the process."""

from faulty.many_tensors import ManyTensors
from faulty.unforkable import Misbehaving  # noqa: F401 - by importing it no fork works

WORKLOAD = ManyTensors
