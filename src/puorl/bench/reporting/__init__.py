"""Tables, figures and answers from the stored rows alone."""
