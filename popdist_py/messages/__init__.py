"""Messages: what commands and programs tell a user: short texts, suggestions, warnings at the user's own line."""
