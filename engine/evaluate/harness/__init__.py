"""A task of lm-evaluation-harness, run by the harness itself over the policy that is loaded."""
