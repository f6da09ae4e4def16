"""Sections of the `rl_run` config, one file a section. Torch-free."""
