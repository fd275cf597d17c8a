"""Compute: tensors, memory and weights of a learning step."""
