"""What a score is worth: intervals and paired comparisons. Knows no model."""
