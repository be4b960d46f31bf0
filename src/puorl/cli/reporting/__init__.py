"""`puorl report`: one page from the folders that other commands left."""
