"""Runs side by side: whether their held-out rows differ, by how much, and what was set apart."""
