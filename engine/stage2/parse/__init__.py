"""From an answer's token ids to the objects it names."""
