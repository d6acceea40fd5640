"""Calibration: the parameters of the prediction, fitted to measured rows, and the default calibration."""
