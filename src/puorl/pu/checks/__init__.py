"""The parts of a filter report: one question a file, answered without labels."""
