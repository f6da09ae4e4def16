"""Data files in the forms that runs read: looked at before a job is queued, read by the run."""
