"""train: a module, a loss, an optimiser and data in; the trained module out.

    module = ipu_emu.torch.train(module, nn.CrossEntropyLoss(), torch.optim.Adam(module.parameters()), data, epochs=5)

Under ``poprun-py`` every instance makes the same call, and the replicas are those of the job.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch

import popdist_py
from ipu_emu.hostio.checkpoint import Checkpoints
from ipu_emu.poptorch.enums import ConnectionType, OutputMode
from ipu_emu.poptorch.executor.executor import PoplarExecutor
from ipu_emu.poptorch.optim.update_rules import OF_PYTORCH
from ipu_emu.poptorch.options.options import Options
from ipu_emu.poptorch.options.strategies import BalancedPipeline
from ipu_emu.session.options.compile_options import cache_folder
from ipu_emu.session.options.without_effect import say_without_effect
from ipu_emu.torch.batches import Batches, Spread, batches_of
from ipu_emu.torch.objective import CountedLoss, MeanLosses, Objective
from ipu_emu.torch.optimiser_state import OptimiserState
from ipu_emu.torch.progress_bar import ProgressBar

#: The schedulers that step after each weight update; the others step after each epoch.
_PER_BATCH = (torch.optim.lr_scheduler.OneCycleLR, torch.optim.lr_scheduler.CyclicLR)


def train(
    module: torch.nn.Module,
    loss: Callable[..., torch.Tensor] | None,
    optimiser: Any,
    data: Any,
    *,
    replicas: int | None = None,
    ipus: int | None = None,
    epochs: int = 1,
    batch_size: int | None = None,
    accumulation: int | None = None,
    clip: float | None = None,
    scheduler: Any = None,
    shuffle: bool | None = None,
    seed: int = 0,
    checkpoints: str | Path | None = None,
    checkpoint_every: int | None = None,
    after_epoch: Callable[[int, float], object] | None = None,
    progress: bool = True,
    options: Options | None = None,
) -> torch.nn.Module:
    """Train ``module`` in place on emulated IPUs, and return it.

    ``loss(output, target)`` takes the last element of a batch as the target; None: forward returns the loss.
    ``optimiser`` is one of PyTorch's or PopTorch's SGD, Adam, AdamW, RMSprop or LAMB, or PyTorch's Adagrad, Adadelta
    or Adamax, or a function of the parameters that returns it; its state is used and updated. Parameters without an
    optimiser are not trained. ``data`` are those of the whole job on every instance: a tuple of tensors, a data set,
    a data loader, or an iterable of batches.

    ``replicas`` copies of the module share each batch of ``batch_size`` samples (32, or that of the data loader), in
    ``accumulation`` micro-batches each. ``ipus`` per replica form a pipeline, whose stages are chosen by work and
    bytes. Both default to the options of poprun-py, else 1. Gradients are the mean over micro-batches and replicas,
    scaled down to the norm ``clip`` if given. With the same batch size and accumulation, the weights are bitwise
    equal for any number of instances and IPUs.

    ``scheduler`` steps after each epoch, with its mean loss if that is what it watches; OneCycleLR and CyclicLR step
    after each weight update. With a folder for ``checkpoints``, which all hosts share, the state is saved
    after each epoch, or every ``checkpoint_every`` steps, and a later call with the same arguments continues from
    there. ``after_epoch(epoch, mean_loss)`` may read the module. ``options`` are PopTorch options to start from; with
    ``useOfflineIpuTarget`` the program is only compiled, into the executable cache.

    Raise ValueError for numbers that do not fit each other, and poptorch.Error for a module that cannot be compiled.
    """
    _check(module, loss, epochs, options)
    job = _job(replicas, ipus)
    optimiser = _optimiser_of(module, optimiser, clip)
    batches = batches_of(data, batch_size, shuffle=shuffle, seed=seed)
    spread = _spread(batches.size, accumulation, job)
    bar = ProgressBar(epochs, batches.count and batches.count * epochs, shown=progress and job.instance == 0)
    counted = CountedLoss.of(loss, data, spread.accumulation * spread.replicas)
    objective = Objective(module, counted or loss)
    state = OptimiserState(optimiser, objective)
    with _frozen(module, optimiser), _executor(objective, optimiser, options, job, spread, seed) as executor:
        run = _Training(executor, batches, spread, job, bar, optimiser, scheduler, counted, state, objective.means)
        if _is_offline(options):
            run.compile()
            return module
        with nullcontext() if checkpoints is None else Checkpoints(checkpoints) as store, closing(run):
            run.train(epochs, store, checkpoint_every, after_epoch)
    return module


def _is_offline(options: Options | None) -> TypeGuard[Options]:
    return options is not None and options.connection_type is ConnectionType.Never


def _check(module: Any, loss: Any, epochs: int, options: Options | None) -> None:
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"the module is {_kind(module)}; give an instance of torch.nn.Module")
    if not module.training:
        raise ValueError("the module is in evaluation mode; call module.train() before it is trained")
    if loss is not None and not callable(loss):
        raise TypeError(f"the loss is {_kind(loss)}; give a function such as torch.nn.CrossEntropyLoss()")
    if epochs < 0:
        raise ValueError(f"epochs = {epochs}; use at least 0")
    if _is_offline(options) and cache_folder(options.executable_cache) is None:
        raise ValueError(
            "useOfflineIpuTarget() only compiles, and the program would be lost: set enableExecutableCaching(folder)"
        )


def _optimiser_of(module: torch.nn.Module, optimiser: Any, clip: float | None) -> Any:
    """Return the optimiser; a function is called with the trained parameters of ``module``."""
    if callable(optimiser) and not isinstance(optimiser, torch.optim.Optimizer):
        optimiser = optimiser([parameter for parameter in module.parameters() if parameter.requires_grad])
    if not hasattr(optimiser, "param_groups"):
        raise TypeError(f"the optimiser is {_kind(optimiser)}; use one such as torch.optim.Adam(module.parameters())")
    if not isinstance(optimiser, _Executor.optimisers):
        names = ", ".join(kind.__name__ for kind in _Executor.optimisers)
        raise TypeError(f"the optimiser is {_kind(optimiser)}, which does not run on the device; use one of {names}")
    hints = ("foreach", "fused", "capturable", "differentiable")
    without_effect = [name for name in hints if any(group.get(name) for group in optimiser.param_groups)]
    say_without_effect("The argument of the optimiser", without_effect)
    if clip is not None:
        optimiser.max_grad_norm = float(clip)
    return optimiser


def _kind(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


class _Job:
    """The replicas of the job and of this instance."""

    def __init__(self, replicas: int, ipus: int, instance: int, instances: int) -> None:
        self.replicas, self.ipus, self.instance, self.instances = replicas, ipus, instance, instances
        self.local = replicas // instances


def _job(replicas: int | None, ipus: int | None) -> _Job:
    for name, value in (("replicas", replicas), ("ipus", ipus)):
        if value is not None and value < 1:
            raise ValueError(f"{name} = {value}; use at least 1")
    if not popdist_py.isPopdistEnvSet():
        return _Job(replicas or 1, ipus or 1, 0, 1)
    popdist_py.init()
    launched = {"replicas": popdist_py.getNumTotalReplicas(), "ipus": popdist_py.getNumIpusPerReplica()}
    for name, value, flag in (("replicas", replicas, "--num-replicas"), ("ipus", ipus, "--ipus-per-replica")):
        if value is not None and value != launched[name]:
            raise ValueError(
                f"{name} = {value}, and poprun-py was started with {flag} {launched[name]}; use equal numbers, or "
                f"leave {name} out"
            )
    return _Job(launched["replicas"], launched["ipus"], popdist_py.getInstanceIndex(), popdist_py.getNumInstances())


def _spread(size: int, accumulation: int | None, job: _Job) -> Spread:
    if size % job.replicas:
        raise ValueError(
            f"batch_size {size} is not divisible by {job.replicas} replicas; use a multiple of {job.replicas}"
        )
    share, least = size // job.replicas, 2 * job.ipus - 1 if job.ipus > 1 else 1
    fitting = [count for count in range(least, share + 1) if share % count == 0]
    if accumulation is None:
        if not fitting:
            raise ValueError(
                f"a pipeline of {job.ipus} IPUs needs {least} micro-batches for each replica, and {job.replicas} "
                f"replicas share a batch_size of {size}; use a multiple of {job.replicas * 2 * job.ipus}"
            )
        accumulation = fitting[0]
    elif accumulation not in fitting:
        raise ValueError(
            f"accumulation = {accumulation} does not fit {share} samples for each replica on {job.ipus} IPUs; use "
            f"one of {', '.join(map(str, fitting)) or 'a larger batch_size'}"
        )
    return Spread(size, accumulation, job.replicas, job.instance * job.local, job.local)


@contextmanager
def _frozen(module: torch.nn.Module, optimiser: Any) -> Iterator[None]:
    """Freeze the parameters that are not in the optimiser."""
    trained = {id(p) for group in optimiser.param_groups for p in group["params"]}
    left = [p for p in module.parameters() if p.requires_grad and id(p) not in trained]
    for p in left:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in left:
            p.requires_grad_(True)


class _Executor(PoplarExecutor):
    optimisers = OF_PYTORCH

    def _mode_has_changed(self, name: str, mode: bool) -> None:
        called = "train" if mode else "eval"
        where = f"{name.removeprefix('module.')} of the module" if name.removeprefix("module") else "the module"
        raise ValueError(
            f"{where} has changed its mode since the first step; call its {called}() before the next step"
        )


@contextmanager
def _executor(
    objective: Objective, optimiser: Any, options: Options | None, job: _Job, spread: Spread, seed: int
) -> Iterator[PoplarExecutor]:
    """Context manager of the executor; at its end the weights are copied to the module and the device is released."""
    settings = Options() if options is None else options.clone()
    settings.set(random_seed=seed, replication_factor=job.local)
    settings.Distributed.configureProcessId(job.instance, job.instances)
    settings.Training.gradientAccumulation(spread.accumulation)
    settings.outputMode(OutputMode.All).broadcastBuffers(False).relaxOptimizerAttributesChecks()
    settings.set(auto_round_num_ipus=None)  # the launcher says which IPUs are idle
    if job.ipus > 1:
        settings.setExecutionStrategy(BalancedPipeline(job.ipus))
    _share(objective.module, job)
    executor = _Executor(objective, settings, training=True, optimizer=optimiser)
    try:
        yield executor
    finally:
        executor.destroy()


def _share(module: torch.nn.Module, job: _Job) -> None:
    """Copy the parameters and buffers of the first instance to all others."""
    if job.instances == 1:
        return
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.numel():
                plain = tensor.detach().to(torch.float32) if tensor.dtype is torch.bfloat16 else tensor.detach()
                first = popdist_py.broadcast(np.ascontiguousarray(plain.numpy()), 0)
                tensor.copy_(torch.from_numpy(first).reshape(tensor.shape))


@dataclass
class _Training:
    """The steps of a training run, of which ``step`` are done."""

    executor: PoplarExecutor
    batches: Batches
    spread: Spread
    job: _Job
    bar: ProgressBar
    optimiser: Any
    scheduler: Any
    counted: CountedLoss | None
    state: OptimiserState
    means_of_loss: MeanLosses
    losses: list[float] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    step: int = 0
    finite: bool = True

    def compile(self) -> None:
        """Compile for the first batch."""
        args, named = self._call(next(self.batches.epoch(self.spread, 0, 0)))
        self.executor.compile(*args, **named)

    def train(
        self,
        epochs: int,
        store: Checkpoints | None,
        every: int | None,
        after_epoch: Callable[[int, float], object] | None,
    ) -> None:
        first, skipped = self._resume(store)
        for epoch in range(first, epochs):
            for number, batch in enumerate(self.batches.epoch(self.spread, epoch, skipped), skipped + 1):
                self.losses.append(self._one_step(batch, epoch))
                if store is not None and every is not None and self.step % every == 0:
                    self._save(store, epoch, number)
            skipped = 0
            if not self.losses:
                raise ValueError(f"data gave no batch of {self.spread.size} samples in epoch {epoch + 1}")
            mean = self._mean()
            self.bar.epoch(epoch + 1, self.step, mean)
            self._after(epoch, mean, after_epoch)
            if store is not None and every is None:
                self._save(store, epoch + 1, 0)

    def _one_step(self, batch: Any, epoch: int) -> float:
        args, named = self._call(batch)
        self._start(args, named)
        spread = self.spread
        self.means_of_loss.check(
            (*args, *named.values()), spread.accumulation * spread.replicas, local=spread.accumulation * spread.local
        )
        with self._undamped():
            losses = self.executor(*args, **named).reshape(-1).tolist()
        loss = math.fsum(losses) / len(losses)
        self.step += 1
        if not math.isfinite(loss) and self.finite:
            self.finite = False
            warnings.warn(
                f"the loss is {loss} in step {self.step}, and the weights may hold no numbers any more: use a "
                "smaller learning rate, or clip; python -W error::RuntimeWarning stops here",
                RuntimeWarning,
                stacklevel=4,
            )
        if isinstance(self.scheduler, _PER_BATCH):
            self._schedule()
        self.bar.step(epoch + 1, self.step, loss, self.spread.size)
        popdist_py.report(step=self.step, samples=self.spread.size // self.job.instances, loss=loss)
        return loss

    def _call(self, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of forward in a batch, with the count of a counted loss for every micro-batch."""
        if isinstance(batch, Mapping):
            return (), dict(batch)
        args = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
        if self.counted is None or len(args) < 2:
            return args, {}
        count = self.counted.count(args[-1])
        if self.job.instances > 1:
            count = float(popdist_py.allReduce(np.float64(count)))
        spread = self.spread
        share = max(count, 1e-30) / (spread.accumulation * spread.replicas)
        return (*args, torch.full((spread.accumulation * spread.local,), share)), {}

    def _start(self, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Compile for the first step, and copy the state of the optimiser to the device."""
        if self.executor.isCompiled():
            return
        self.executor.compile(*args, **named)
        if not self.executor.isAttachedToDevice():
            self.executor.attachToDevice()
        self.state.load(self.executor)

    def close(self) -> None:
        """End the progress bar, and copy the state of the optimiser back."""
        self.bar.close()
        if self.step and self.executor.isAttachedToDevice():
            self.state.fetch(self.executor, self.step)

    @contextmanager
    def _undamped(self) -> Iterator[None]:
        """Context manager of a step; PyTorch's SGD starts its momentum with the first gradient as it is."""
        first = self.step == 0 and type(self.optimiser) is torch.optim.SGD and not self.state.values()
        groups = [g for g in self.optimiser.param_groups if first and g["dampening"] and g["momentum"]]
        if not groups:
            yield
            return
        values = [g["dampening"] for g in groups]
        self._set_dampening(groups, [0.0] * len(groups))
        try:
            yield
        finally:
            self._set_dampening(groups, values)

    def _set_dampening(self, groups: list[dict[str, Any]], values: list[float]) -> None:
        for group, value in zip(groups, values, strict=True):
            group["dampening"] = value
        self.executor.setOptimizer(self.optimiser)

    def _mean(self) -> float:
        """The mean loss of the epoch over all instances."""
        mean = math.fsum(self.losses) / len(self.losses)
        self.losses.clear()
        if self.job.instances > 1:
            mean = float(popdist_py.allReduce(np.float64(mean))) / self.job.instances
        return mean

    def _after(self, epoch: int, mean: float, call: Callable[[int, float], object] | None) -> None:
        if call is not None:
            call(epoch + 1, mean)
        self.means.append(mean)
        if not isinstance(self.scheduler, _PER_BATCH):
            self._schedule(mean)

    def _schedule(self, mean: float = math.nan) -> None:
        if self.scheduler is not None:
            self.optimiser._opt_called = True  # PyTorch warns of schedulers that step before their optimiser
            measured = isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
            self.scheduler.step(*[mean] if measured else [])
            self.executor.setOptimizer(self.optimiser)

    # Checkpoints

    def _save(self, store: Checkpoints, epoch: int, skipped: int) -> None:
        state = {"epoch": epoch, "skipped": skipped, "losses": self.losses, "means": self.means}
        store.save(self.executor.trained_state(), self.step, state)

    def _resume(self, store: Checkpoints | None) -> tuple[int, int]:
        """Load the newest checkpoint, if there is one; return the epoch and the number of batches of it to skip."""
        if store is None:
            return 0, 0
        args, named = self._call(next(self.batches.epoch(self.spread, 0, 0)))
        self._start(args, named)
        resumed = store.restore(self.executor.trained_state())
        self.step = resumed.step
        epoch, skipped = resumed.state.get("epoch", 0), resumed.state.get("skipped", 0)
        self.losses = list(resumed.state.get("losses", []))
        self.means = list(resumed.state.get("means", []))
        per_batch = isinstance(self.scheduler, _PER_BATCH)
        for mean in [math.nan] * self.step if per_batch else self.means:
            self._schedule(mean)
        return epoch, skipped
