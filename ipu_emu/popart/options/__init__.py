"""options: DataFlow and the settings of inputs and variables, and the rules for the options of a session."""
