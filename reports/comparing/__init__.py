"""The page of a comparison: what it says, what it draws, and how it becomes a file."""
