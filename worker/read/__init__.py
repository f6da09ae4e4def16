"""The read side: what pages, REST and the command line show. Writes nothing."""
