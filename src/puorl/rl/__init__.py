"""Learn a policy from rows."""
