"""The child: it builds, checks, warms up, times and checks again, and sends records to the parent.

The only importer of workloads; nothing here rules on what it sees.
"""
