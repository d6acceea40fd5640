"""placement: the IPU of each op and tensor, and the copies between IPUs."""
