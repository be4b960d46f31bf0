"""Train and evaluate what a plan asks for, and keep it."""
