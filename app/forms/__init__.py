"""Forms made from a kind's schema, and what is checked before a job is sent."""
