"""Runners: how an engine is started, followed and ended; here on this machine."""
