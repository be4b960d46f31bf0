"""Which unlabelled rows are ours?"""
