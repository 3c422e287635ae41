"""What a launch is told of a small step."""

OPERATIONS = 1e9
"""As the plan has them of any step at small size, within a factor of some hundred: far fewer than
those beyond which a step is sampled. Where a test builds many models, to count them anew for each
would take as long as its step."""
