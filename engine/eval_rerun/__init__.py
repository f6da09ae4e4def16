"""`eval_rerun`: a model answers rows, and nothing is trained."""
