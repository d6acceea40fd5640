"""LSTM, GRU and a graph layer with scatter, with embeddings and a packed target."""

import poptorch
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.table = nn.Embedding(20, 8, padding_idx=0)
        self.layer = kind(8, 8, batch_first=True)
        self.head = nn.Linear(8, 5)
        self.loss = nn.CrossEntropyLoss(ignore_index=-1)

    def forward(self, ids, tags):
        y, _ = self.layer(self.table(ids))
        logits = self.head(y)
        return logits.argmax(-1), self.loss(logits.view(-1, 5), tags.view(-1))


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x, source, target, label):
        for layer in (self.one, self.two):
            messages = layer(x).index_select(0, source)
            index = target.unsqueeze(1).expand_as(messages)
            x = torch.zeros(6, messages.shape[1]).scatter_add(0, index, messages)
            x = torch.relu(x) if layer is self.one else x
        return nn.functional.nll_loss(nn.functional.log_softmax(x, 1), label)


torch.manual_seed(0)
ids, tags = torch.randint(1, 20, (4, 6)), torch.randint(0, 5, (4, 6))
for kind in (nn.LSTM, nn.GRU, nn.RNN):
    model = Tagger(kind)
    training = poptorch.trainingModel(model, optimizer=torch.optim.Adam(model.parameters(), 0.05))
    losses = [training(ids, tags)[1].item() for _ in range(15)]
    print(kind.__name__, losses[0], losses[-1])
    assert losses[-1] < 0.7 * losses[0]
edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])
model = Graph()
training = poptorch.trainingModel(model, optimizer=torch.optim.Adam(model.parameters(), 0.05))
label = torch.tensor([0, 1, 2, 0, 1, 2])
x = torch.randn(6, 4)
losses = [training(x, edges[0], edges[1], label).item() for _ in range(15)]
print("graph", losses[0], losses[-1])
assert losses[-1] < losses[0]
