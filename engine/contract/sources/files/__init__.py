"""Files of rows: which belong to a source, and one module for each format that reads them.

A format says the endings of its files, what it counts (`line`, `row`) and reads a stream to rows:
pairs of a number and the row's columns, or BadRowError for one that is none. What makes the whole
file unreadable is UnreadableError. Knows no layout.
"""
