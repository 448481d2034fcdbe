"""Numba kernels: arrays in, arrays out, nothing else of the project.

Every kernel takes flat, C-contiguous arrays and plain numbers, writes into arrays that the caller gives it and releases
the GIL. Importing this package does not import numba; a module of kernels does.
"""
