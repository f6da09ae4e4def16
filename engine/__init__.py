"""The engine room: what trains. It knows no web and no database."""
