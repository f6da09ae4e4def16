"""Worker processes that judge what may hang: the pool and the fork server they come from."""
