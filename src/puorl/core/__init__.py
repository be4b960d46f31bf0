"""What every other room may use; imports nothing of ours."""
