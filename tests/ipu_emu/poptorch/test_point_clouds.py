"""Point clouds: nearest points and farthest samples on the device, against plain loops on the host."""

import math
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import ipu_emu.poptorch as poptorch  # noqa: E402

pytestmark = pytest.mark.torch


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


def on_device(function, *tensors):
    return poptorch.inferenceModel(Call(function))(*tensors).tolist()


def farthest(points, ptr, ratio):
    indices = []
    for low, high in pairwise(ptr):
        chosen = [low]
        while len(chosen) < math.ceil(ratio * (high - low)):
            near = {
                index: min(math.dist(points[index], points[other]) for other in chosen) for index in range(low, high)
            }
            chosen.append(max(near, key=near.get))
        indices += chosen
    return indices


def test_nearest_points_are_those_of_a_search_over_all():
    torch.manual_seed(0)
    x, y = torch.randn(9, 3), torch.randn(5, 3)
    assert on_device(poptorch.nearest, x, y) == torch.cdist(x, y).argmin(1).tolist()
    of_x, of_y = [0] * 4 + [1] * 5, [0, 0, 1, 1, 1]
    nearest = on_device(lambda x, y: poptorch.nearest(x, y, of_x, of_y), x, y)
    assert nearest == [
        min((i for i in range(5) if of_y[i] == batch), key=lambda i: math.dist(point, y[i]))
        for point, batch in zip(x, of_x, strict=True)
    ]
    assert on_device(poptorch.nearest, torch.tensor([1.0, 4.0]), torch.tensor([0.0, 5.0])) == [0, 1]


@pytest.mark.parametrize("ratio", [0.2, 0.5, 1.0])
def test_each_sample_is_the_farthest_from_those_before_it(ratio):
    torch.manual_seed(1)
    points, ptr = torch.randn(11, 2), [0, 4, 11]
    assert on_device(lambda src: poptorch.fps(src, ptr, ratio), points) == farthest(points.tolist(), ptr, ratio)
    assert on_device(lambda src: poptorch.fps(src, torch.tensor(ptr), ratio), points) == farthest(points, ptr, ratio)


def test_samples_with_a_random_start_are_different_points():
    points = torch.randn(8, 2)
    indices = on_device(lambda src: poptorch.fps(src, [0, 8], 1.0, random_start=True), points)
    assert sorted(indices) == list(range(8))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda: poptorch.fps(torch.ones(3, 2), [0, 3], 0.0), "a ratio of 0 is not possible"),
        (lambda: poptorch.fps(torch.ones(3, 2), [0, 2]), r"ptr \[0, 2\] does not divide 3 points; give 0, the later"),
        (
            lambda: poptorch.nearest(torch.ones(3, 2), torch.ones(3, 1)),
            "points of x have 2 coordinates and those of y 1",
        ),
    ],
)
def test_mistakes_are_reported(function, text):
    with pytest.raises(poptorch.Error, match=text):
        function()


def test_internals_are_refused_by_name():
    import ipu_emu.poptorch._impl as internals

    with pytest.raises(AttributeError, match=r"poptorch\._impl\.dispatcher is internal to PopTorch"):
        _ = internals.dispatcher
