"""Recurrent networks: RNN, GRU, LSTM."""
