"""What all policy losses share: their input, the KL term, sampler weights, and their sum."""
