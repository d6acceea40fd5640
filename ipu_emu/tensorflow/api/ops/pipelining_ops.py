"""Pipelining: ``pipeline`` builds a program whose stages work on different IPUs at the same time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tensorflow.python.eager import backprop
from tensorflow.python.framework import dtypes, ops, tensor_util
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.training import optimizer as optimizer_v1
from tensorflow.python.util import nest

from ipu_emu.program.schedules import ALL_IPUS
from ipu_emu.tensorflow.api.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_emu.tensorflow.api.ipu_infeed_queue import IPUInfeedQueue
from ipu_emu.tensorflow.api.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_emu.tensorflow.api.loops import split_outputs
from ipu_emu.tensorflow.api.optimizers.ipu_optimizer import (
    compute_gradients,
    is_keras,
    totals,
)
from ipu_emu.tensorflow.run.pipeline_arguments import (
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    StageFunction,
)
from ipu_emu.tensorflow.run.pipeline_call import PipelineCall
from ipu_emu.tensorflow.trace.function_trace import (
    FunctionTrace,
    PipelineSection,
    Section,
    current_trace,
    is_resource,
)

__all__ = [
    "OptimizerFunctionOutput", "PipelineSchedule", "PipelineStageOptions", "RecomputationMode", "pipeline",
    "recomputation_checkpoint",
]  # fmt: skip

_ALL_DEVICES = -1
_Stage = Callable[..., Any] | Sequence[Callable[..., Any]]


class OptimizerFunctionOutput:
    """The result of an optimiser function: the optimiser and the loss, and how gradients are computed and applied."""

    def __init__(
        self,
        opt: Any,
        loss: Any,
        compute_gradients_args: Sequence[Any] | None = None,
        compute_gradients_kwargs: dict[str, Any] | None = None,
        apply_gradients_args: Sequence[Any] | None = None,
        apply_gradients_kwargs: dict[str, Any] | None = None,
        variables: Sequence[Any] | None = None,
        tape: Any = None,
        gradient_capture_context: Any = None,
        captured_gradient_outfeed: Any = None,
    ) -> None:
        self.opt, self.loss = opt, loss
        self.compute_gradients_args = tuple(compute_gradients_args or ())
        self.compute_gradients_kwargs = dict(compute_gradients_kwargs or {})
        self.apply_gradients_args = tuple(apply_gradients_args or ())
        self.apply_gradients_kwargs = dict(apply_gradients_kwargs or {})
        self.variables = tuple(variables or ())
        self.tape, self.gradient_capture_context = tape, gradient_capture_context
        self.captured_gradient_outfeed = captured_gradient_outfeed
        self._check()

    def _check(self) -> None:
        if not (isinstance(self.opt, optimizer_v1.Optimizer) or _is_keras_optimiser(self.opt)):
            raise TypeError("OptimizerFunctionOutput.opt must be a TensorFlow Optimizer or Keras OptimizerV2 object.")
        if not isinstance(self.loss, tensor_lib.Tensor):
            raise TypeError("OptimizerFunctionOutput.loss must be a TensorFlow Tensor object.")
        if self.tape is not None and not isinstance(self.tape, backprop.GradientTape):
            raise TypeError("OptimizerFunctionOutput.tape must be a TensorFlow GradientTape object.")
        keras = is_keras(self.opt)
        if keras and (self.compute_gradients_args or self.compute_gradients_kwargs):
            raise ValueError(
                "OptimizerFunctionOutput.compute_gradients_args and compute_gradients_kwargs may only be used with a "
                "TensorFlow Optimizer."
            )
        if not keras and (self.variables or self.tape is not None):
            raise ValueError("OptimizerFunctionOutput.variables and tape may only be used with a Keras OptimizerV2.")
        if self.variables and self.tape is not None:
            raise ValueError("OptimizerFunctionOutput.tape and variables may not be used together.")
        if self.tape is not None and self.gradient_capture_context is not None:
            raise ValueError("OptimizerFunctionOutput.tape and gradient_capture_context may not be used together.")
        sources = (self.tape, self.gradient_capture_context)
        if self.captured_gradient_outfeed is not None and not any(
            hasattr(source, "captured_gradients") for source in sources
        ):
            raise ValueError(
                "OptimizerFunctionOutput.captured_gradient_outfeed needs a tape or a gradient_capture_context."
            )


def _is_keras_optimiser(opt: Any) -> bool:
    return any(kind.__module__.split(".")[0] in ("keras", "tf_keras") for kind in type(opt).__mro__[:-1]) and hasattr(
        opt, "apply_gradients"
    )


def pipeline(
    computational_stages: Sequence[_Stage],
    gradient_accumulation_count: Any = None,
    gradient_accumulation_dtype: Any = None,
    gradient_accumulation_for_captured_grads: bool = True,
    repeat_count: int = 1,
    batch_serialization_iterations: int = 1,
    inputs: Sequence[Any] | None = None,
    infeed_queue: IPUInfeedQueue | None = None,
    outfeed_queue: IPUOutfeedQueue | None = None,
    optimizer_function: Callable[..., OptimizerFunctionOutput] | None = None,
    device_mapping: Sequence[Any] | None = None,
    pipeline_schedule: PipelineSchedule | None = None,
    recomputation_mode: RecomputationMode | None = None,
    forward_propagation_stages_poplar_options: Sequence[PipelineStageOptions] | None = None,
    backward_propagation_stages_poplar_options: Sequence[PipelineStageOptions] | None = None,
    weight_update_poplar_options: PipelineStageOptions | None = None,
    offload_weight_update_variables: bool | None = None,
    replicated_optimizer_state_sharding: bool = False,
    offload_activations: bool | None = None,
    offload_gradient_accumulation_buffers: bool | None = None,
    replicated_weight_sharding: bool | None = None,
    offload_weights: bool | None = None,
    continuous_weight_updates: bool = False,
    outfeed_loss: bool = False,
    outfeed_mask: Sequence[bool] | None = None,
    accumulate_outfeed: bool = False,
    accumulate_outfeed_dtype: Any = None,
    reduction_method: Any = GradientAccumulationReductionMethod.SUM,
    name: str | None = None,
    pipeline_depth: Any = None,
) -> Any:
    """Run the stages as a pipeline, and with an ``optimizer_function`` train; return an op."""
    arguments = dict(locals())
    trace = current_trace()
    if trace is None:
        raise ValueError("pipeline must be called in a function that ipu_compiler.compile compiles")
    arguments.pop("trace", None)
    arguments["name"] = name or "pipeline"
    depth = arguments.pop("pipeline_depth")
    if arguments["gradient_accumulation_count"] is None and depth is not None:
        arguments["gradient_accumulation_count"] = depth
    return _Pipeline(trace, arguments).build()


def recomputation_checkpoint(tensors: Any, name: str | None = None) -> Any:
    """Return ``tensors``, which are kept for the backward pass when others are recomputed."""
    trace = current_trace()
    if trace is None:
        return tensors
    return nest.map_structure(lambda tensor: trace.mark(tensor, "checkpoint", None, name or "checkpoint"), tensors)


class _Pipeline:
    """One call of ``pipeline``."""

    def __init__(self, trace: FunctionTrace, options: dict[str, Any]) -> None:
        self.trace, self.options = trace, options
        self.infeed: IPUInfeedQueue | None = options.pop("infeed_queue")
        self.outfeed: IPUOutfeedQueue | None = options.pop("outfeed_queue")
        self.inputs = options.pop("inputs")
        self.stages = options["computational_stages"]
        self.dynamic: Any = None
        self._check_queues()

    def _check_queues(self) -> None:
        if self.infeed is not None and not isinstance(self.infeed, IPUInfeedQueue):
            raise TypeError("infeed_queue is not an instance of ipu_infeed_queue.IPUInfeedQueue")
        if self.outfeed is not None and not isinstance(self.outfeed, IPUOutfeedQueue):
            raise TypeError("outfeed_queue is not an instance of ipu_outfeed_queue.IPUOutfeedQueue")
        if not isinstance(self.stages, list | tuple):
            raise TypeError("computational_stages argument needs to be a list or a tuple.")

    def arguments(self) -> dict[str, Any]:
        """The arguments in the form that the argument checks take."""
        options = dict(self.options)
        if options["recomputation_mode"] is None:
            options["recomputation_mode"] = RecomputationMode.Auto
        options["gradient_accumulation_count"] = self.count(options["gradient_accumulation_count"])
        method = options["reduction_method"]
        options["reduction_method"] = GradientAccumulationReductionMethod.parse(method).name
        rows = None if self.outfeed is None else self.outfeed.rows
        return {**options, "outfeed_queue": rows, "late": True}

    def count(self, value: Any) -> Any:
        """The number of mini-batches, or a function if it is known only in a run."""
        if not isinstance(value, tensor_lib.Tensor):
            return value
        known = tensor_util.constant_value(value)
        if known is not None:
            return int(known)
        if value.dtype != dtypes.int32:
            raise ValueError("gradient_accumulation_count must be an integer or an int32 tensor.")
        self.dynamic = value
        return lambda: 1

    def build(self) -> Any:
        """Call the stages and the optimiser function, and add the weight update."""
        names = [_names(stage) for stage in self.stages]
        arguments = self.arguments()
        functions = [[StageFunction(part) for part in stage] for stage in names]
        call = PipelineCall(**{**arguments, "computational_stages": _shaped(self.stages, functions)})
        trace = self.trace
        outer = trace.section
        if outer is not None and outer.kind == "pipeline":
            raise ValueError("A pipeline cannot be called in a stage of a pipeline")
        count = call.gradient_accumulation_count
        number = count if isinstance(count, int) else 1
        settings: dict[str, Any] = {
            "kind": "pipeline",
            "accumulation": number * call.batch_serialization_iterations,
            "reduction": str(call.reduction_method),
            "offload": call.offload_weight_update_variables,
            "shard_states": call.replicated_optimizer_state_sharding,
            "count": self.dynamic,
        }
        with ops.name_scope(call.name):
            if outer is None:
                section = Section(start=trace.position(), batches=call.repeat_count, **settings)
                with trace.in_section(section):
                    self.build_section(section, call, arguments, functions)
            else:  # the enclosing loop repeats the pipeline
                self.build_section(outer, call, arguments, functions)
                outer.batches *= call.repeat_count
                for name, value in settings.items():
                    setattr(outer, name, value)
        return trace.nothing([], call.name)

    def build_section(
        self, section: Section, call: PipelineCall, arguments: dict[str, Any], functions: list[list[StageFunction]]
    ) -> None:
        ranges: list[tuple[int, int, int, int]] = []
        values: Any = self.first_inputs()
        for number, stage in enumerate(self.stages):
            ipus = call.mapping[number]
            parts = list(stage) if isinstance(stage, list | tuple) else [stage]
            outputs: list[Any] = []
            for index, function in enumerate(parts):
                start = self.trace.position()
                result = self.call_stage(function, values)
                end = self.trace.position()
                ipu = 0 if ipus == (ALL_IPUS,) else ipus[min(index, len(ipus) - 1)]
                ranges.append((start, end, number, ipu))
                functions[number][index] = self.described(functions[number][index], result, values, start, end)
                if functions[number][index].captured:
                    name = functions[number][index].captured[0]
                    raise ValueError(
                        f"Trying to capture the tensor {name} which is not a resource. This tensor needs to be "
                        "passed as either part of the `input` or `infeed_queue` of the pipeline."
                    )
                outputs.append(result)
            values = outputs[0] if len(outputs) == 1 else [value for part in outputs for value in nest.flatten(part)]
        tensors, _ = split_outputs(values)
        if tensors and self.outfeed is None and call.optimizer_function is None:
            listed = ", ".join(tensor.name for tensor in tensors)
            raise ValueError(
                f"The last computational stage has tensor outputs: {listed}, but no outfeed_queue has been provided."
            )
        sharded = frozenset(n for n, ipus in enumerate(call.mapping) if ipus == (ALL_IPUS,))
        loss = None
        if call.optimizer_function is not None:
            loss = self.train(section, call, values, ranges)
        self.enqueue(section, call, values, tensors, loss)
        compiled = PipelineCall(**{**arguments, "computational_stages": _shaped(self.stages, functions)})
        section.pipeline = PipelineSection(compiled, tuple(ranges), sharded)

    # Stages

    def first_inputs(self) -> Any:
        """The arguments of stage 0: the inputs, then an element of the infeed."""
        values: list[Any] = []
        for value in self.inputs or ():
            if isinstance(value, resource_variable_ops.BaseResourceVariable):
                warnings.warn(
                    f"{value.name} is passed to the pipeline by its value; use it in the stages directly",
                    stacklevel=4,
                )
            values.append(self.trace.graph.capture(ops.convert_to_tensor(value)))
        if self.infeed is None:
            return values
        element = self.infeed._dequeue()
        if isinstance(element, dict):
            return (values, element)
        return [*values, *(element if isinstance(element, tuple | list) else [element])]

    def call_stage(self, function: Callable[..., Any], values: Any) -> Any:
        if isinstance(values, dict):
            return function(**values)
        if isinstance(values, tuple) and len(values) == 2 and isinstance(values[1], dict):
            return function(*values[0], **values[1])
        arguments = [] if values is None else list(values) if isinstance(values, list | tuple) else [values]
        return function(*arguments)

    def described(self, function: StageFunction, result: Any, values: Any, start: int, end: int) -> StageFunction:
        """Describe what a stage returns, uses and captures."""
        trace = self.trace
        everything = trace.graph.get_operations()
        inside = {op.name for op in everything[start:end]}
        operands = {id(value) for value in nest.flatten(values) if isinstance(value, tensor_lib.Tensor)}
        resources = {inner.name: outer for outer, inner in trace.captures() if is_resource(outer)}
        plain = {inner.name: outer for outer, inner in trace.captures() if not is_resource(outer)}
        variables, captured = dict[str, None](), dict[str, None]()
        shards = {ipu for first, last, ipus in trace.shards if start <= first and last <= end for ipu in ipus}
        for op in everything[start:end]:
            for tensor in op.inputs:
                if tensor.name in resources:
                    variables[resources[tensor.name].op.name] = None
                elif id(tensor) in operands:
                    continue
                elif tensor.name in plain:
                    if plain[tensor.name].op.type != "PlaceholderWithDefault":
                        captured[plain[tensor.name].name] = None
                elif tensor.op.name not in inside:
                    captured[tensor.name] = None
        tensors, _ = split_outputs(result)
        outputs = tuple(tensor.name for tensor in tensors) if self.outfeed is not None else ()
        return replace(
            function, outputs=outputs, variables=tuple(variables), captured=tuple(captured), shards=tuple(shards)
        )

    # Training

    def train(
        self, section: Section, call: PipelineCall, values: Any, ranges: list[tuple[int, int, int, int]]
    ) -> Any:
        """Compute gradients, mark their sums and apply them; return the loss."""
        trace, (_, _, last, ipu) = self.trace, ranges[-1]
        start = trace.position()
        assert call.optimizer_function is not None
        spec = self.call_stage(call.optimizer_function, values)
        ranges.append((start, trace.position(), last, ipu))
        if not isinstance(spec, OptimizerFunctionOutput):
            raise TypeError(
                "The optimizer_function of a pipeline must return an OptimizerFunctionOutput, not "
                f"{type(spec).__name__}"
            )
        pairs = [(gradient, variable) for gradient, variable in self.gradients(spec) if gradient is not None]
        if not pairs:
            raise ValueError("No variables to optimize. The loss depends on no trainable variable of the pipeline.")
        marked = totals(trace, pairs, call.gradient_accumulation_dtype)
        with trace.updating():
            done = spec.opt.apply_gradients(marked, *spec.apply_gradients_args, **spec.apply_gradients_kwargs)
        if isinstance(done, ops.Operation):
            section.roots.append(done)
        if spec.captured_gradient_outfeed is not None:
            self.enqueue_captured(spec, call)
        return spec.loss

    def enqueue_captured(self, spec: OptimizerFunctionOutput, call: PipelineCall) -> None:
        """Enqueue captured gradients: combined like those of weights, or for each mini-batch."""
        queue, source = spec.captured_gradient_outfeed, spec.tape or spec.gradient_capture_context
        captured = dict(source.captured_gradients)
        if not captured:
            raise ValueError("No gradient was captured; use capture_upstream_gradients in a stage.")
        count = call.gradient_accumulation_count
        if call.gradient_accumulation_for_captured_grads and isinstance(count, int):
            queue.added = count
            if str(call.reduction_method) != "SUM":
                captured = {tag: gradient / count for tag, gradient in captured.items()}
        queue.enqueue(captured)

    def gradients(self, spec: OptimizerFunctionOutput) -> list[tuple[Any, Any]]:
        if spec.tape is not None:
            variables = list(spec.tape.watched_variables())
            return list(zip(spec.tape.gradient(spec.loss, variables), variables, strict=True))
        if is_keras(spec.opt):
            return list(compute_gradients(spec.opt, spec.loss, spec.variables or None))
        return list(
            spec.opt.compute_gradients(spec.loss, *spec.compute_gradients_args, **spec.compute_gradients_kwargs)
        )

    # Results

    def enqueue(self, section: Section, call: PipelineCall, values: Any, tensors: list[Any], loss: Any) -> None:
        """Enqueue the loss, or the outputs of the last stage that the mask selects."""
        queue = self.outfeed
        if queue is None:
            return
        if call.accumulate_outfeed:
            count = call.gradient_accumulation_count
            queue.added = count if isinstance(count, int) else 1
            section.outfeed = queue
            kind = call.accumulate_outfeed_dtype
            queue.added_dtype = None if kind is None else dtypes.as_dtype(kind)
        if call.outfeed_loss:
            queue.enqueue(loss)
            return
        if call.outfeed_mask is not None:
            if len(call.outfeed_mask) != len(tensors):
                raise ValueError(
                    f"The last computational stage has {len(tensors)} outputs, but the `outfeed_mask` has elements "
                    f"{len(call.outfeed_mask)} - these need to match in size."
                )
            tensors = [tensor for tensor, hidden in zip(tensors, call.outfeed_mask, strict=True) if not hidden]
        if not tensors:
            return
        if isinstance(values, dict) and call.outfeed_mask is None:
            queue.enqueue(values)
        elif len(tensors) == 1 and call.optimizer_function is None:
            queue.enqueue(tensors[0])
        else:
            queue.enqueue(list(tensors))


def _names(stage: Any) -> list[str]:
    parts = stage if isinstance(stage, list | tuple) else [stage]
    return [getattr(function, "__name__", type(function).__name__) for function in parts]


def _shaped(stages: Sequence[Any], functions: list[list[StageFunction]]) -> list[Any]:
    """The functions in the structure of the stages: lists for lists."""
    return [
        list(described) if isinstance(stage, list | tuple) else described[0]
        for stage, described in zip(stages, functions, strict=True)
    ]
