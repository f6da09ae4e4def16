"""All of the engine that the cockpit and the worker may import.

Nothing in here imports torch, transformers, the web or the database.
"""
