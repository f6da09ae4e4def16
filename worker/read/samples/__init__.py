"""What runs wrote: their rollout files, found by step and split and read a row at a time."""
