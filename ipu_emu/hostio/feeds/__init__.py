"""Step data in the forms that sessions take: feeds, arrays, callbacks."""
