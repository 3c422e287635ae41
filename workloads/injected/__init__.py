"""Workloads that go wrong on purpose, one fault each, for `bench selftest`.

Each is a real workload with its own inputs and checks, and a step, or what is around it, that
does what a broken device or a careless kernel does. Its `injector` names the fault, which plan and
journal then carry, and no run with one is accepted. They are named with a dot
("workloads.injected.zeros") and listed nowhere; the workloads that measure devices have no switch
that turns a fault on.
"""
