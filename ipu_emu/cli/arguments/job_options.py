"""Job options: the options of commands that compute with a job instead of compiling a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from os.path import isfile
from typing import TYPE_CHECKING, Any

import click

from gcl import ArgumentError
from gcl.drawing.units import counted, parse_bytes
from ipu_emu.cli.arguments.model_options import RECOMPUTATIONS
from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules import SCHEDULES

if TYPE_CHECKING:
    from ipu_emu.cli.arguments.onnx_argument import OnnxFile
    from ipu_emu.predict.calibration.profile import Profile
    from ipu_emu.predict.job import Job

release_option = click.option(
    "--release",
    default="2.3",
    show_default=True,
    help="SDK of the job. Calibrations distinguish 2.1 and 2.3; any other counts as the last of these before it.",
)

_OPTIONS = (
    click.option("--system", help="Name of a system, as for ipu-emu info.  [default: the smallest Pod, from pod16]"),
    click.option("--replicas", type=int, default=1, show_default=True, help="Total number of replicas."),
    click.option(
        "--ipus",
        "--ipus-per-replica",
        "ipus",
        type=int,
        default=1,
        show_default=True,
        help="IPUs per replica: 1, 2, 4, 8 or 16.",
    ),
    click.option("--batch", type=int, default=1, show_default=True, help="Sequences or images per micro-batch."),
    click.option("--accumulation", type=int, default=1, show_default=True, help="Micro-batches per weight update."),
    click.option("--global-batch", type=float, help="Samples per weight update; sets --accumulation."),
    click.option("--inference", is_flag=True, help="The forward pass only."),
    click.option("--dtype", help="Type of weights: float16, float.  [default: float16, or that of a file]"),
    click.option(
        "--optimiser", default="sgd", show_default=True, help="sgd, momentum, lars, rmsprop, adam, adamw, lamb."
    ),
    click.option(
        "--recompute",
        type=click.Choice(RECOMPUTATIONS, case_sensitive=False),
        help="Keep one result per layer and recompute the others; without a value, Standard. All kinds count alike, "
        "except that NormOnly counts as no recomputation.",
    ),
    click.option("--schedule", default="grouped", show_default=True, help=f"Pipeline: {', '.join(SCHEDULES)}."),
    click.option(
        "--off-chip",
        multiple=True,
        metavar="WHAT",
        help="Keep weights, states, activations, accumulators in Streaming Memory; repeatable. By default, states "
        "are kept there if the job does not fit otherwise; none forbids that.",
    ),
    click.option("--shared", multiple=True, metavar="WHAT", help="Shard weights, states over replicas; repeatable."),
    click.option("--length", type=int, help="Tokens per sequence.  [default: that of the network]"),
    click.option("--vocabulary", type=int, help="Words of the table.  [default: that of the network]"),
    click.option("--masked", type=int, help="Positions of a sequence that get logits.  [default: 15.6 %]"),
    click.option("--size", type=int, help="Pixels of a side of an image.  [default: that of the network]"),
    click.option("--packing", type=float, default=1.0, show_default=True, help="Samples packed into a sequence."),
    click.option(
        "--layers",
        metavar="3,7,7,7",
        help="Layers on each IPU; 1/1,3/3,4/3: attention and feed-forward parts.  [default: balanced]",
    ),
    click.option("--embedding-ipu", type=int, default=0, show_default=True, help="IPU of embedding and tied logits."),
    click.option("--input-dtype", help="Type of inputs: uint8, float16, float, int32.  [default: uint8 for images]"),
    click.option(
        "--overlap-io/--no-overlap-io",
        default=True,
        show_default=True,
        help="Input arrives while IPUs compute.",
    ),
    click.option("--bn-span", type=int, default=1, show_default=True, help="Replicas that share batch statistics."),
    click.option("--stash-dtype", default="float16", show_default=True, help="Type of kept activations."),
    click.option(
        "--merge-collectives/--no-merge-collectives",
        default=True,
        show_default=True,
        help="One collective of all gradients, or one for each block.",
    ),
    click.option("--hosts", type=int, default=0, help="Number of hosts.  [default: as many as the system may have]"),
    click.option("--host-rate", help="Input that a host prepares per second, such as 2GB, as measured by hostio."),
    click.option("--samples", type=float, default=0.0, help="Samples of an epoch, for the time to train."),
    click.option("--epochs", type=float, default=0.0, help="Epochs, for the time to train."),
    release_option,
)


def job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command."""
    instances = click.option(
        "--instances", type=int, default=0, help="Processes on all hosts.  [default: at least one on each host]"
    )
    return shared_job_options(instances(command))


def shared_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command without --instances."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def calibration_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add --calibration."""
    return click.option(
        "--calibration",
        metavar="FILE",
        help="A file written by ipu-emu calibrate, or none for nominal rates.  [default: the built-in calibration]",
    )(command)


def profile_named(name: str | None) -> Profile | None:
    """The profile of ``--calibration``."""
    from ipu_emu.predict.calibration.profile import load, shipped

    if name is None:
        return shipped()
    return None if name == "none" else load(name)


def options_given(names: Iterable[str]) -> list[str]:
    """The options with these parameter ``names`` that are on the command line."""
    context, wanted = click.get_current_context(), set(names)
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in wanted
        and context.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
    ]


def warn_of(names: Iterable[str], why: str) -> None:
    """Warn of options with these parameter ``names`` that are on the command line: they have no effect."""
    named = list(dict.fromkeys(options_given(names)))
    if named:
        warnings.warn(f"{' and '.join(named)} {'has' if len(named) == 1 else 'have'} no effect {why}", stacklevel=2)


def byte_count(text: str, option: str) -> float:
    """Bytes, or bytes per second, such as 2GB/s."""
    try:
        return float(parse_bytes(text.removesuffix("/s"), option))
    except ArgumentError as error:
        raise EmulatorError(str(error)) from None


def job_of(model: str, **options: Any) -> tuple[Job, bool]:
    """The job that the options describe, and whether its states may be moved to Streaming Memory automatically."""
    from ipu_emu.cli.arguments.onnx_argument import OnnxFile
    from ipu_emu.hardware import System
    from ipu_emu.predict.calibration.rows import layer_counts
    from ipu_emu.predict.job import Job, smallest_pod

    settings = dict(options)
    system, off_chip, layers = settings.pop("system"), settings.pop("off_chip"), settings.pop("layers")
    wanted, rate = settings.pop("global_batch"), settings.pop("host_rate")
    settings["recompute"] = settings["recompute"] not in (None, "NormOnly")
    inference, settings["input_dtype"] = settings.pop("inference"), settings["input_dtype"] or ""
    if system is None:
        where = smallest_pod(max(16, settings["replicas"] * settings["ipus"]), System.named("pod16"))
    else:
        where = System.named(system, "--system ")
    if "none" in off_chip and len(off_chip) > 1:
        raise EmulatorError(
            "--off-chip none with other values: none means that everything is on the IPUs; give either"
        )
    host_rate = 0.0 if rate is None else byte_count(rate, "--host-rate")
    if rate is not None and not host_rate:
        raise EmulatorError(f"--host-rate {rate}: the rate must be above 0")
    file = OnnxFile.read(model, settings["batch"]) if isfile(model) else None
    network, dtype = (None, "float16") if file is None else file.network()
    settings["dtype"] = settings["dtype"] or dtype
    job = Job(
        model if network is None else network.name,
        where,
        own_network=network,
        training=not inference,
        off_chip=tuple(kind for kind in off_chip if kind != "none"),
        layers=layer_counts(layers) if layers else (),
        host_rate=host_rate,
        **settings,
    )
    if wanted is not None:
        job, accumulation = job.for_global_batch(wanted), job.accumulation
        if job.accumulation != accumulation and options_given(["accumulation"]):
            raise EmulatorError(
                f"--global-batch {wanted:g} makes --accumulation {job.accumulation}, not {accumulation}; give either"
            )
    _check_hosts(job)
    if file is not None:
        _warn_of_export(file, dtype, training=job.training)
    return job, not off_chip


def _check_hosts(job: Job) -> None:
    """Raise EmulatorError for fewer hosts than Pods; warn of IPUs that are reserved and idle."""
    ipus = job.replicas * job.ipus
    pods = -(-ipus // job.system.domain_size)
    if 0 < job.hosts < pods:
        raise EmulatorError(
            f"--hosts {job.hosts}: {counted(ipus, 'IPU')} of {job.system.name} are in {pods} Pods, each with its own "
            f"host; use at least {pods}"
        )
    device = 1 << (ipus - 1).bit_length()
    if device != ipus:
        warnings.warn(
            f"{counted(job.replicas, 'replica')} of {counted(job.ipus, 'IPU')} take {ipus} IPUs, and a job gets a "
            f"power of two: {device}, of which {device - ipus} idle",
            stacklevel=3,
        )


def _warn_of_export(file: OnnxFile, dtype: str, *, training: bool) -> None:
    """Warn of a file that is priced in the type of its weights, and of one that was exported for inference."""
    if dtype == "float" and not options_given(["dtype"]):
        warnings.warn(
            f"the weights of {file.path} are in FLOAT, and so is the prediction; --dtype float16 predicts half "
            "precision, which is faster, and --dtype float accepts this",
            stacklevel=3,
        )
    types = {op.type for op in file.graph.ops}
    if training and "Conv" in types and not any("Norm" in type for type in types):
        warnings.warn(
            f"{file.path} has convolutions without normalisations: if it was exported for inference, batch norms are "
            "folded into them, and training with batch norms takes longer than predicted; export with "
            "training=torch.onnx.TrainingMode.TRAINING, or predict --inference",
            stacklevel=3,
        )
