"""Host state: the tensors of a module and PyTorch's random numbers, which a recording of forward must not change."""

from __future__ import annotations

import torch

from ipu_emu.poptorch.errors import Error


class HostState:
    """Context manager that restores buffers, parameters and the random state of the host.

    ``changed`` has the names of the buffers that were changed in place. Raise poptorch.Error at the end for a name
    that has gone or has another tensor, or whose tensor has other memory.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.changed: frozenset[str] = frozenset()
        self._module, self._random = module, torch.get_rng_state()
        frozen = (parameter for parameter in module.parameters() if not parameter.requires_grad)
        self._states = [(tensor, tensor.detach().clone()) for tensor in (*module.buffers(), *frozen)]
        self._versions = {name: buffer._version for name, buffer in module.named_buffers()}
        self._tables = [
            (path, part, dict(part._buffers), dict(part._parameters)) for path, part in module.named_modules()
        ]
        self._memories = [(tensor, tensor.data) for tensor in (*module.buffers(), *module.parameters())]

    def __enter__(self) -> HostState:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        try:
            if error is None:
                self._check()
                self.changed = frozenset(
                    name
                    for name, buffer in self._module.named_buffers()
                    if buffer._version != self._versions.get(name, buffer._version)
                )
        finally:
            self._restore()

    def _restore(self) -> None:
        for _, owner, buffers, parameters in self._tables:
            owner._buffers.update(buffers)
            owner._parameters.update(parameters)
        for tensor, data in self._memories:
            if _has_moved(tensor, data):
                tensor.data = data
        with torch.no_grad():
            for tensor, old in self._states:
                if not torch.equal(tensor, old):  # a copy counts as a change of a parameter
                    tensor.detach().copy_(old)
        torch.set_rng_state(self._random)

    def _check(self) -> None:
        moved = {id(tensor) for tensor, data in self._memories if _has_moved(tensor, data)}
        for path, owner, buffers, parameters in self._tables:
            if isinstance(owner, torch.nn.modules.batchnorm._NormBase):
                continue
            for kind, old, new in (
                ("Buffer", buffers, owner._buffers),
                ("Parameter", parameters, owner._parameters),
            ):
                for name, tensor in old.items():
                    what = f"{kind} {f'{path}.{name}'.lstrip('.')}"
                    if name not in new:
                        raise Error(f"{what} is removed from the model when calling the forward method.")
                    if new[name] is not tensor or id(tensor) in moved:
                        raise Error(
                            f"{what} is reassigned within the model when calling the forward method. This is not "
                            f"supported. Consider using self.{name}.copy_(src) to copy data from a source tensor, "
                            "where `src` is the name of the source tensor."
                        )


def _has_moved(tensor: torch.Tensor, data: torch.Tensor) -> bool:
    return bool(tensor.data_ptr() != data.data_ptr())
