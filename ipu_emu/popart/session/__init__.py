"""InferenceSession and TrainingSession, their step data, weights and reports."""
