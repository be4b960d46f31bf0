"""Work on data that does not fit into memory: partition by partition, on one machine or on Ray."""
