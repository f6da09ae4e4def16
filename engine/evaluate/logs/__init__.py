"""Files of completions: of our own runs, and sample logs of lm-evaluation-harness and Inspect."""
