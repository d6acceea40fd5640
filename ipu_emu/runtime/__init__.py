"""runtime: what every face needs to run an executable: host weights, steps, modelled time, reports."""
