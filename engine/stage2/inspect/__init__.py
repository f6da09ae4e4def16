"""What people see of a rollout: roles, weights and fates of its tokens, and its pictures."""
