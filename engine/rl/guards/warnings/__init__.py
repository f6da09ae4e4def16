"""What a run should be told of while it goes on: one file a warning, each `look(seen)`."""
