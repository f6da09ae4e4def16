"""Pages for people: one file a page."""
