"""Descriptions of elements: specs, shapes and ragged tensors."""
