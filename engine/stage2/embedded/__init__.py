"""The embedded vision model and its drawn data: no download."""
