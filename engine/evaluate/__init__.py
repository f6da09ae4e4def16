"""Held-out scores of a policy: the gate asks its questions and counts what was solved."""
