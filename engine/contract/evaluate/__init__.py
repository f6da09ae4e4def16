"""What an evaluation is told: which checkpoints, which benches."""
