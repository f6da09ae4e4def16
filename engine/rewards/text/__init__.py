"""Reading answers: numbers, formulas, code fences, and the rows that verifiers expect."""
