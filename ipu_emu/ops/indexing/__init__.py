"""Indexing: reads and writes of elements, rows or slices at given indices."""
