"""The lane: one accelerator, one job at a time: who holds it, and what else lives on it."""
