"""A module that a script imports from its own folder."""

number = 3
