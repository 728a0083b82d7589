"""CUDA, its driver and the libraries around torch: what does not fit together."""
