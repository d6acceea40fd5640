"""Calibration: the parameters of the prediction, fitted to measured rows; those that this project ships."""
