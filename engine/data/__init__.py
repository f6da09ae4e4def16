"""Questions: where they come from, how they are split, and in which order they are drawn."""
