"""From a collective and a fabric to a schedule: options, choice of method, phases."""
