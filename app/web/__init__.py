"""What every page stands on: guard, live stream, templates, assets, problems, settings."""
