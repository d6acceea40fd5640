"""What a script finds beside it."""

number = 3
