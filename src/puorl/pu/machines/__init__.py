"""Decide about machines: units of many rows, embedded by their dynamics, sorted into types."""
