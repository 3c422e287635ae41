"""The verbs of `bench baseline`: measured figures from signed runs, and what they are worth."""
