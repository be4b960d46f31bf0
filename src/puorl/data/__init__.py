"""What a row is, how it is read and written, and every object that crosses rooms."""
