"""The modelled seconds of a schedule, and the memory and cycles it takes on a tile."""
