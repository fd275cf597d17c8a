"""Kernels: compiled functions for processors and CUDA devices."""
