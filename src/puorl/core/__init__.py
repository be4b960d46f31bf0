"""Errors, files, resources, hashes and statistics that all rooms share."""
