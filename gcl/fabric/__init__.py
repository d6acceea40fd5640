"""The IPUs of a job, their links and tiles, and the rings that run over them."""
