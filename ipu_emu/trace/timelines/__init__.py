"""timelines: a run as it is drawn over time: lanes of spans for the page, arrows between them, events for Perfetto."""
