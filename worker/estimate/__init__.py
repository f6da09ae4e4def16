"""How long a job will take and how much memory it will need, from jobs that ended."""
