"""What starts by itself, and when: the policy, the crontab line, admission by budget."""
