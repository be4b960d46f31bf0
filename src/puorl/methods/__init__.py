"""What data and rewards each approach hands to the learner."""
