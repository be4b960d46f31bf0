"""Neural networks: MLPs in JAX with GPU kernels, the same in NumPy, and Adam."""
