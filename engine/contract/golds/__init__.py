"""What a row's answer must be for the verifier that reads it: looked at before anything runs."""
