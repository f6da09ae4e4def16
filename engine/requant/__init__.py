"""The engine of `requant`."""
