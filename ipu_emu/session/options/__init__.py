"""options: session options and patterns under PopART's names, and their translation for the compiler."""
