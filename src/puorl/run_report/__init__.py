"""Pages made from the folders of other commands."""
