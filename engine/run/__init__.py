"""What every kind of run needs: its session, checkpoints, lineage and stopping. Knows no kind."""
