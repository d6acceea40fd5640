"""Which IPU each op and tensor is on, and the copies between IPUs."""
