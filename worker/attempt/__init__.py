"""One attempt at a job: the child process, what it reports, and how it ends."""
