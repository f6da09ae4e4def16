"""Policy losses; one file each, named like its function, with its paper and equation.

A loss turns what `Tokens` holds into a loss per token. Weighing it, adding the KL term and
bringing tokens to one number are the same for all of them (`combined_loss`).
"""
