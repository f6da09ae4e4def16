"""One file a verifier; its name is the file's name."""
