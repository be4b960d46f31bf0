"""Where data comes from and where policies are judged."""
