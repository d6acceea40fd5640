"""transforms: from the model that the user wrote to the graph that a step runs; one file per transform."""
