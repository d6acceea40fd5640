"""Messages: texts for users: shortened errors, suggestions, and warnings that point to the user's own line."""
