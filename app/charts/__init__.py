"""Charts, their panels and the small marks that the server draws itself."""
