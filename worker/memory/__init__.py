"""Memory of the machine: how much is left, what is done when it runs short, what was seen."""
