"""Layouts of rows: where the question and its answer are in a row of TRL, verl or a dataset as
published. One module each; the first whose columns are there reads the source.

A module says its `NAME`, what it `WANTS` in words, and `recognise(row)`: the Reading of rows with
such columns, None for others. Knows no file.
"""
