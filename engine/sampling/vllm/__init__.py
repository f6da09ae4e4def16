"""Completions from a vLLM server: started, asked, given new weights, and checked against ours."""
