"""Policies: models with their tokenizer, built on the spot or loaded from a folder."""
