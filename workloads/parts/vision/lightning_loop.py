"""Lightning's own training loop, one step at a time.

`Trainer.fit` does not return before the training ends, and a step of a workload must. So the loop
runs in a thread of its own and is held where a user's loader holds it: whenever it asks for the
next batch. A step hands it one, and is over when the loop asks again; the thread that asked for
the step waits meanwhile, so only one of the two ever runs. All that Lightning does for a step lies
in between: its fetcher, the move of the batch to the device, hooks, callbacks, precision plugin,
optimiser wrapper, logging and progress.
"""

from __future__ import annotations

import logging
import threading
import warnings
import weakref
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.accelerators import Accelerator, AcceleratorRegistry
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import SingleDeviceStrategy

from workloads.parts.training.optimizers import Tensors

_ENDLESS = 2**40
_ENDED = object()


class Module(LightningModule):
    """A network as a user of Lightning writes it down: what a step is, and its optimiser."""

    def __init__(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.network = network
        self.optimizer = optimizer

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer

    def training_step(self, batch: Tensors, batch_idx: int) -> dict[str, torch.Tensor]:
        del batch_idx
        result = self.network(**batch)
        self.log("loss", result.loss)
        return {"loss": result.loss, "logits": result.logits}

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None
    ) -> None:
        """Forward and backward, then the update: as Lightning does, but the one after the other."""
        del epoch, batch_idx
        optimizer_closure()
        optimizer.step()


class LastOutput(Callback):
    """Keeps loss and logits of the last step, as a callback that watches a training does."""

    def __init__(self) -> None:
        self.loss = self.logits = torch.empty(0)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        del trainer, pl_module, batch, batch_idx
        self.loss, self.logits = outputs["loss"].detach(), outputs["logits"].detach()


class AnyAccelerator(Accelerator):
    """Torch's accelerator, for those of which Lightning has no class (Intel's devices)."""

    def setup_device(self, device: torch.device) -> None:
        torch.accelerator.set_device_index(device.index)

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        del device
        return {}

    def teardown(self) -> None:
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is not None:  # torch.accelerator has no empty_cache in 2.8
            torch.get_device_module(accelerator).empty_cache()

    @staticmethod
    def parse_devices(devices: list[int]) -> list[int]:
        return devices

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        accelerator = torch.accelerator.current_accelerator()
        assert accelerator is not None  # noqa: S101 - the network lies on it
        return [torch.device(accelerator.type, index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        return torch.accelerator.device_count()

    @staticmethod
    def is_available() -> bool:
        return torch.accelerator.is_available()

    @staticmethod
    def name() -> str:
        return "accelerator"


class _Gate:
    """Between the thread that asks for steps and the one that runs the loop."""

    def __init__(self) -> None:
        self.batches: SimpleQueue[Any] = SimpleQueue()
        self.idle: SimpleQueue[BaseException | None] = SimpleQueue()

    def __len__(self) -> int:
        return _ENDLESS  # so that the loop does not fetch a batch ahead

    def __iter__(self) -> Iterator[Tensors]:
        """Say that the loop is idle, then wait for a batch; ends when the training is given up."""
        while True:
            self.idle.put(None)
            batch = self.batches.get()
            if batch is _ENDED:
                return
            yield batch

    def end(self) -> None:
        self.batches.put(_ENDED)


class Loop:
    """A training by Lightning; each call makes one step of it.

    The loop ends with this object. What goes wrong in it is raised by the call that it happened in.
    """

    def __init__(self, trainer: Trainer, module: Module, results: LastOutput) -> None:
        self._gate = _Gate()
        self._kept = results  # a name that recorded starts digest with what lies in it
        weakref.finalize(self, self._gate.end).atexit = False
        # A daemon ends with the process at the latest, wherever it waits.
        thread = threading.Thread(
            target=_run, args=(trainer, module, self._gate), name="lightning", daemon=True
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what Lightning itself uses of torch
            thread.start()
            self._wait()

    def __call__(self, batch: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """Train on the batch; loss and logits."""
        self._gate.batches.put(batch)
        self._wait()
        return self._kept.loss, self._kept.logits

    def _wait(self) -> None:
        error = self._gate.idle.get()
        if error is not None:
            raise error


def _run(trainer: Trainer, module: Module, gate: _Gate) -> None:
    try:
        trainer.fit(module, gate)
    except BaseException as error:  # noqa: BLE001 - raised where the step was asked for
        gate.idle.put(error)


def begin(
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    dtype: torch.dtype,
) -> Loop:
    """Start Lightning on the network, which lies on the device; returns before the first step."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)  # no advertisements
    results = LastOutput()
    is_known = device.type in AcceleratorRegistry.available_accelerators()
    is_mixed = dtype is torch.bfloat16
    # Left to itself Lightning computes as if all but the processors were one vendor's devices.
    mixed = [MixedPrecision("bf16-mixed", device.type)] if is_mixed else []
    other = SingleDeviceStrategy(device=device, accelerator=AnyAccelerator())
    trainer = Trainer(
        accelerator=device.type if is_known else "auto",
        strategy="auto" if is_known else other,
        devices=1 if device.index is None else [device.index],
        precision=None if is_mixed else "32-true",
        max_epochs=1,
        callbacks=[results],
        # never the environment of a cluster which started this process
        plugins=[LightningEnvironment(), *mixed],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    return Loop(trainer, Module(network, optimizer), results)
