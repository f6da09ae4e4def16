"""The worker room: what decides and guards."""
