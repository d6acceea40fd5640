"""rewriting: passes that check anchors and prepare a model for other passes, and the writer that appends ops."""
