"""Prompt templates: how a question is written, the same in training and on a bench."""
