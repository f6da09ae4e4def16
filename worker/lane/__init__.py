"""The lane: one accelerator, one job at a time, and what guards it."""
