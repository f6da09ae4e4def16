"""A model's program run where it can do no harm, with its tests."""
