"""Arguments: the options and models that several commands take, and what is compiled of them."""
