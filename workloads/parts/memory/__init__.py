"""Memory under test: digests, patterns, chains of products, streams, copies and disks."""
