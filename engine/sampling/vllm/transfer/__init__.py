"""What runs inside vLLM's own environment, found there by this folder on its PYTHONPATH."""
