"""From segments to gradients: packs, layout, losses, and the forward and backward passes."""
