"""REST: one file a resource."""
