"""options: SessionOptions, DataFlow, Patterns and other settings, and their translation for the compiler."""
