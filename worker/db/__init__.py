"""The database: its connection, its tables, and the rows that every other part writes."""
