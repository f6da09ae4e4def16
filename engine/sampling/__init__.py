"""What a policy answers: samplers, prompts and random numbers. `base` names the protocol."""
