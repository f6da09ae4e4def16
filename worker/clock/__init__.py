"""Times: hours and days in a time zone, a start time as people write it, a night."""
