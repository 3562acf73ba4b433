"""Kernels for GPUs, each with its plain counterpart as reference."""
