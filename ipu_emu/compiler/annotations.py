"""Annotations: the attributes of an op that set its placement and the storage of its outputs."""

#: The IPU of the replica that runs the op.
IPU_NUMBER = "__ipu_number"
#: The stage of the pipeline that the op belongs to.
PIPELINE_STAGE = "__pipeline_stage"
#: The execution phase that the op belongs to; phases take turns on the IPUs.
EXECUTION_PHASE = "__execution_phase"
#: 1 keeps the outputs for the backward pass, 2 recomputes them there.
RECOMPUTE = "__recompute_output_in_backward_pass"
#: The location of the outputs until the backward pass; the first number is 1 for Streaming Memory.
OUTPUT_LOCATION = "__output_tensor_location"
