"""What checkpoints scored on benches: the leaderboard, and pairs of scores tested row by row."""
