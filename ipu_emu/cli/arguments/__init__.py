"""Arguments: the options and models that several commands take, and their compilation."""
