"""Jobs: the table, its states, the queue and the read side."""
