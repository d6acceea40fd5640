"""A classifier with its loss in forward: asynchronous loading, device iterations, training, then inference."""

import poptorch
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, num_filters_in, num_filters, kernel_size, pool_size):
        super().__init__()
        self.conv = nn.Conv2d(num_filters_in, num_filters, kernel_size=kernel_size)
        self.pool = nn.MaxPool2d(kernel_size=pool_size)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.pool(self.conv(x)))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = Block(1, 8, 3, 2)
        self.layer2 = Block(8, 16, 3, 2)
        self.layer3 = nn.Linear(64, 32)
        self.layer3_act = nn.ReLU()
        self.layer3_dropout = nn.Dropout(0.1)
        self.layer4 = nn.Linear(32, 4)
        self.softmax = nn.LogSoftmax(1)
        self.loss = nn.NLLLoss(reduction="mean")

    def forward(self, x, labels=None):
        x = self.layer2(self.layer1(x)).view(-1, 64)
        x = self.layer4(self.layer3_dropout(self.layer3_act(self.layer3(x))))
        predictions = self.softmax(x)
        if self.training:
            return predictions, self.loss(predictions, labels)
        return predictions


def main():
    torch.manual_seed(0)
    labels = torch.randint(0, 4, (256,))
    images = torch.randn(256, 1, 14, 14) * 0.3
    for number in range(4):
        images[labels == number, :, number * 3 : number * 3 + 3] += 2
    dataset = torch.utils.data.TensorDataset(images, labels)
    model = Network()
    opts = poptorch.Options()
    opts.deviceIterations(4)
    opts.randomSeed(42)
    opts.outputMode(poptorch.OutputMode.Final)
    train_loader = poptorch.DataLoader(
        opts, dataset, batch_size=8, shuffle=True, drop_last=True, mode=poptorch.DataLoaderMode.Async,
        async_options={"early_preload": True},
    )  # fmt: skip
    model.train()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    training_model = poptorch.trainingModel(model, opts, optimizer=optimizer)
    for _ in range(6):
        for data, target in train_loader:
            _, loss = training_model(data, target)
    training_model.detachFromDevice()
    train_loader.terminate()

    model.eval()
    test_opts = poptorch.Options().deviceIterations(4)
    inference_model = poptorch.inferenceModel(model, test_opts)
    correct = count = 0
    for data, target in poptorch.DataLoader(test_opts, dataset, batch_size=16):
        correct += (inference_model(data).argmax(1) == target).sum().item()
        count += len(target)
    inference_model.detachFromDevice()
    print(f"accuracy {correct / count:.2f}, loss {loss.item():.3f}")
    assert correct / count > 0.9


if __name__ == "__main__":
    main()
