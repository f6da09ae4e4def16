"""What scores are worth: which step is published, and whether it is better. Torch-free."""
