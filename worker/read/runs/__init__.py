"""The table of runs: read, filtered, sorted and grouped. Writes nothing."""
