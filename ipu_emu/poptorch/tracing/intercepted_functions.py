"""Intercepted functions: PyTorch functions that a trace handles before they are ATen ops: losses, dropout, hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction

from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.tracing.recorder import OpRecorder

#: The functions whose results are losses.
LOSSES: frozenset[Any] = frozenset(
    getattr(F, name)
    for name in (
        "l1_loss", "mse_loss", "smooth_l1_loss", "cross_entropy", "nll_loss", "binary_cross_entropy",
        "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss", "hinge_embedding_loss", "soft_margin_loss",
        "multilabel_soft_margin_loss", "cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss",
        "ctc_loss",
    )
)  # fmt: skip

_RECURRENT = {torch.lstm: "lstm", torch.gru: "gru", torch.rnn_tanh: "rnn_tanh", torch.rnn_relu: "rnn_relu"}
_NAMES = ("input", "states", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")
_DROPOUTS = {F.dropout: False, F.dropout1d: True, F.dropout2d: True, F.dropout3d: True}
_UNBATCHED = {F.dropout1d: 2, F.dropout2d: 3, F.dropout3d: 4}


_FLOATS = (torch.float16, torch.float32)
#: Excludes batch normalisation: its statistics keep their type.
_WITH_WEIGHTS = (
    *(torch.conv1d, torch.conv2d, torch.conv3d, F.linear, F.bilinear),
    *(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
    *(F.layer_norm, F.group_norm),
)


class Functions(TorchFunctionMode):
    """``mark`` is called with every result that is a loss."""

    def __init__(self, recorder: OpRecorder, mark: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self._recorder, self._mark = recorder, mark

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if "device" in kwargs and str(kwargs["device"]).startswith("ipu"):
            kwargs["device"] = torch.device("cpu")
        if func in LOSSES:
            out = func(*args, **kwargs)
            self._mark(out)
            return out
        special = _SPECIAL.get(func)
        if special is not None:
            return special(self, func, args, kwargs)
        return func(*args, **kwargs)

    def _knows(self, *tensors: Any) -> bool:
        return any(isinstance(tensor, torch.Tensor) and self._recorder.storages.knows(tensor) for tensor in tensors)

    def _recurrent(self, func: Any, args: Any, kwargs: Any) -> Any:
        if len(args) == 9 and isinstance(args[2], list | tuple):  # of padded sequences, not of packed ones
            arguments = dict(zip(_NAMES, args, strict=True))
            if isinstance(arguments["states"], torch.Tensor):
                arguments["states"] = [arguments["states"]]
            tensors = [arguments["input"], *arguments["states"], *arguments["params"]]
            same = arguments["input"].dim() == 3
            # Projected layers have a third matrix.
            layers = arguments["num_layers"] * (2 if arguments["bidirectional"] else 1)
            plain = len(arguments["params"]) == layers * (4 if arguments["has_biases"] else 2)
            if self._knows(*tensors) and same and plain:
                return self._recorder.composite(_RECURRENT[func], arguments, lambda: func(*args, **kwargs))
        return func(*args, **kwargs)

    def _dropout(self, func: Any, args: Any, kwargs: Any) -> Any:
        arguments = _bound(func, args, kwargs)
        x = arguments["input"]
        if not self._knows(x) or not arguments["training"] or arguments.get("inplace"):
            return func(*args, **kwargs)
        arguments["channels"] = _DROPOUTS[func]
        arguments["unbatched"] = x.dim() == _UNBATCHED.get(func, -1)
        return self._recorder.composite("fused_dropout", arguments, lambda: x * 1.0)

    def _alike(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Cast weights to the type of the data: mixing FLOAT16 and FLOAT is legal on the device."""
        data = args[0] if args else kwargs.get("input")
        if not isinstance(data, torch.Tensor) or data.dtype not in _FLOATS:
            return func(*args, **kwargs)

        def cast(argument: Any) -> Any:
            weight = isinstance(argument, torch.Tensor) and argument.dtype in _FLOATS and argument.dtype != data.dtype
            return argument.to(data.dtype) if weight else argument

        return func(*(cast(arg) for arg in args), **{name: cast(arg) for name, arg in kwargs.items()})

    def _cosine(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Compute cosine similarity without PyTorch's change in place, which its gradient ignores."""
        arguments = _bound(lambda x1, x2, dim=1, eps=1e-8: None, args, kwargs)
        if not self._knows(arguments["x1"], arguments["x2"]):
            return func(*args, **kwargs)
        return self._recorder.composite("cosine_similarity", arguments, lambda: func(*args, **kwargs))

    def _batch_norm(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Average over all batches so far: the momentum is 1 / n, and n changes on the device."""
        norm = self._recorder.counts_batches
        if norm is None:
            return func(*args, **kwargs)
        arguments = _bound(func, args, kwargs) | {"momentum": 1.0 / norm.num_batches_tracked.float()}
        return self._recorder.composite("native_batch_norm", arguments, lambda: func(*args, **kwargs))

    def _one_hot(self, func: Any, args: Any, kwargs: Any) -> Any:
        arguments = _bound(lambda tensor, num_classes=-1: None, args, kwargs)
        if not self._knows(arguments["tensor"]):
            return func(*args, **kwargs)
        if arguments["num_classes"] < 0:
            raise Error("OneHot num classes must be specified and must be constant.")
        return self._recorder.composite("one_hot", arguments, lambda: func(*args, **kwargs))

    def _to(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensor, *rest = args
        # While forward is traced, tensors are on the host, so moves to the device have no effect.
        named = [target for target in [*rest, kwargs.get("device")] if isinstance(target, str)]
        if "cpu" in named and self._knows(tensor):
            raise Error('Illegal move to CPU (via `.to("cpu")`) when using the dispatcher. Remove it from forward')
        rest = [argument for argument in rest if not str(argument).startswith("ipu")]
        kwargs = {name: argument for name, argument in kwargs.items() if not str(argument).startswith("ipu")}
        return func(tensor, *rest, **kwargs) if rest or kwargs else tensor

    def _read(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._knows(args[0]) and not self._recorder.is_known(args[0]):
            name = func.__name__
            raise Error(f"{self._recorder.where()} reads a value of the device by {name}(); remove it from forward")
        return func(*args, **kwargs)

    def _hook(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._recorder.carries(args[0]):
            raise Error(
                f"{func.__name__} in {self._recorder.where()}: hooks on gradients do not run on the device; compute "
                "what the hook does in forward, or clip with the optimizer's max_grad_norm"
            )
        return func(*args, **kwargs)

    def _differentiated(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensors = [tensor for tensor in [args[0], *args[1:2]] if isinstance(tensor, torch.Tensor | list | tuple)]
        flat = [tensor for group in tensors for tensor in ([group] if isinstance(group, torch.Tensor) else group)]
        if self._knows(*flat):
            raise Error(
                f"{func.__name__}() in {self._recorder.where()} differentiates in forward, which the device cannot; "
                "write the derivative as ops of forward"
            )
        return func(*args, **kwargs)

    def _cpu(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._knows(args[0]):
            raise Error("Illegal move to CPU (via `.cpu()`) when using the dispatcher. Remove it from forward")
        return func(*args, **kwargs)


def _bound(form: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a call of ``form`` by name, with its defaults."""
    bound = inspect.signature(form).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


_SPECIAL: dict[Any, Any] = {
    **dict.fromkeys(_WITH_WEIGHTS, Functions._alike),
    torch.Tensor.to: Functions._to,
    **dict.fromkeys((torch.Tensor.tolist, torch.Tensor.numpy), Functions._read),
    **dict.fromkeys((torch.Tensor.register_hook, torch.Tensor.retain_grad), Functions._hook),
    **dict.fromkeys((torch.Tensor.backward, torch.autograd.grad, torch.autograd.backward), Functions._differentiated),
    torch.Tensor.cpu: Functions._cpu,
    F.batch_norm: Functions._batch_norm,
    F.one_hot: Functions._one_hot,
    F.cosine_similarity: Functions._cosine,
    **dict.fromkeys(_RECURRENT, Functions._recurrent),
    **dict.fromkeys(_DROPOUTS, Functions._dropout),
}


def check_hooks(module: torch.nn.Module) -> None:
    """Raise poptorch.Error for hooks of gradients on parameters and modules.

    The device's gradients are those of the recorded ops. A program that changes gradients by other means is refused.
    """
    hooked = [
        f"the parameter {name}"
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
        and (parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None))
    ]
    hooked += [
        f"the module {name or 'itself'}"
        for name, submodule in module.named_modules()
        if submodule._backward_hooks or submodule._backward_pre_hooks
    ]
    if hooked:
        raise Error(
            f"Hooks on gradients, of {', '.join(hooked)}, do not run on the device: remove them, and freeze weights "
            "with requires_grad_(False) or clip with the optimizer's max_grad_norm"
        )


@contextmanager
def functions_replaced(recorder: OpRecorder) -> Iterator[None]:
    """Context manager in which a torch.autograd.Function with a gradient is refused.

    Checkpoints of PyTorch, which only compute again, are calls of their function.
    """
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls is CheckpointFunction:
            function, _, *inputs = args
            return function(*inputs)
        tensors = [tensor for tensor in [*args, *kwargs.values()] if isinstance(tensor, torch.Tensor)]
        if any(recorder.carries(tensor) for tensor in tensors):
            raise Error(
                f"{cls.__name__}.apply in {recorder.where()}: the backward function of a torch.autograd.Function "
                "does not run on the device; write forward with PyTorch's ops, and detach() what has no gradient"
            )
        return original.__func__(cls, *args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)
    try:
        yield
    finally:
        torch.autograd.Function.apply = original
