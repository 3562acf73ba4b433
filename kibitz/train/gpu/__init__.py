"""Kernels for GPUs, each with a plain counterpart in `train` as its reference. Nothing else may depend on a device."""
