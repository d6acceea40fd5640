"""The options of a large language model's pre-training, on a small model."""

import poptorch
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, words=50, width=16, layers=4):
        super().__init__()
        self.embeddings = poptorch.BeginBlock(nn.Embedding(words, width), "Embedding", ipu_id=0)
        self.encoder = nn.ModuleList(
            [nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True) for _ in range(layers)]
        )
        for index, layer in enumerate(self.encoder):
            self.recomputation_checkpoint(layer)
            self.encoder[index] = poptorch.BeginBlock(layer, f"Encoder{index}", ipu_id=index // 2)
        self.head = poptorch.BeginBlock(nn.Linear(width, words, bias=False), "Classifier", ipu_id=0)
        self.head.weight = self.embeddings.weight

    def recomputation_checkpoint(self, module):
        def hook(module, inputs, outputs):
            return poptorch.recomputationCheckpoint(outputs)

        module.register_forward_hook(hook)

    def forward(self, ids, labels):
        x = self.embeddings(ids)
        for layer in self.encoder:
            x = layer(x)
        logits = self.head(x)
        loss = nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=-100)
        return poptorch.identity_loss(loss, reduction="none"), logits.argmax(-1)


def options():
    opts = poptorch.Options()
    opts.autoRoundNumIPUs(True)
    opts.replicationFactor(2)
    opts.deviceIterations(1)
    opts.Training.gradientAccumulation(8)
    opts.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
    opts.Training.setAutomaticLossScaling(False)
    opts.outputMode(poptorch.OutputMode.Sum)
    opts.randomSeed(42)
    opts.Precision.setPartialsType(torch.half)
    opts.Precision.enableStochasticRounding(False)
    opts.setAvailableMemoryProportion({f"IPU{i}": 0.3 for i in range(2)})
    opts.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    opts.TensorLocations.setOptimizerLocation(
        poptorch.TensorLocationSettings().useOnChipStorage(False).useReplicatedTensorSharding(True)
    )
    opts.TensorLocations.setWeightLocation(poptorch.TensorLocationSettings().useOnChipStorage(True))
    opts._Popart.set("disableGradAccumulationTensorStreams", True)
    opts._Popart.set("subgraphCopyingStrategy", 1)
    opts._Popart.set("scheduleNonWeightUpdateGradientConsumersEarly", True)
    opts._Popart.set("outlineThreshold", 10.0)
    opts._Popart.set("accumulateOuterFragmentSettings.schedule", 2)
    opts._Popart.set("accumulateOuterFragmentSettings.excludedVirtualGraphs", ["0"])
    opts._Popart.set("replicatedCollectivesSettings.prepareScheduleForMergingCollectives", True)
    opts._Popart.set("autoRecomputation", 3)
    opts._Popart.set("decomposeGradSum", True)
    opts._Popart.set("engineOptions", {"opt.internalExchangeOptimisationTarget": "balanced"})
    return opts


def main():
    opts = options()
    model = Encoder().train()
    decay = [p for n, p in model.named_parameters() if "bias" not in n and "norm" not in n]
    rest = [p for n, p in model.named_parameters() if "bias" in n or "norm" in n]
    groups = [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]
    optimizer = poptorch.optim.LAMB(
        groups, lr=5e-3, loss_scaling=128.0, max_weight_norm=None, bias_correction=True, accum_type=torch.float,
        first_order_momentum_accum_type=torch.float32, second_order_momentum_accum_type=torch.float32,
    )  # fmt: skip
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    training = poptorch.trainingModel(model, opts, optimizer)
    ids = torch.randint(0, 50, (16 * 2, 6))
    training.compile(ids, ids)
    losses = []
    for _ in range(8):
        loss, _ = training(ids, ids)
        scheduler.step()
        training.setOptimizer(optimizer)
        losses.append(loss.mean().item() / 8)
    print("loss", losses[0], losses[-1])
    assert losses[-1] < losses[0]


main()
