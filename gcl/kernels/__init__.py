"""Compiled code: the compiler and its cache, element types, atomics, copies, and loops over elements."""
