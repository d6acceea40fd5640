"""session: InferenceSession and TrainingSession, and their step data."""
