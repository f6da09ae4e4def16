"""The morning's report: what a night came to, traced to the rows it is made of."""
