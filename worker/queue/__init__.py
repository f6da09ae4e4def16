"""The queue: jobs submitted, claimed, ordered, changed and pruned, and their states."""
