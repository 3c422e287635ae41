"""From the bundles of a campaign to tables: each verified, none counted twice, all of them stated.

Verified bundles are the only state. What lies here reads them from folders or object storage,
verifies each in a confined child, says of each whether it counts and why not, and derives tables,
outliers and one signed statement. Nothing here runs on a node, and no page is made here.
"""
