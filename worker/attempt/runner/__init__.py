"""Runners: where an engine runs, and how it is started, followed, stopped and killed there."""
