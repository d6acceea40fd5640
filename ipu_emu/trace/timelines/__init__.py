"""timelines: a run drawn over time: lanes of spans for the page, arrows between them, events for Perfetto."""
