"""Images: compiled preparation equals numpy's, and depends on seed, epoch and sample only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu.errors import FeedError
from ipu_emu.hostio import Feed
from ipu_emu.hostio.data.image_transforms import Images

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PICTURES = np.random.default_rng(0).integers(0, 256, (12, 9, 8, 3)).astype(np.uint8)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_centre_crop_and_normalisation(dtype: Any, layout: str) -> None:
    scaled = dtype is not np.uint8
    images = Images(
        crop=(5, 4),
        random=False,
        mean=MEAN if scaled else None,
        std=STD if scaled else None,
        dtype=dtype,
        layout=layout,
    )
    expected = PICTURES[:, 2:7, 2:6]
    expected = ((expected / 255 - MEAN) / STD).astype(dtype) if scaled else expected
    expected = expected.transpose(0, 3, 1, 2) if layout == "CHW" else expected
    (step,) = Feed(PICTURES, prepare=images, micro_batch=12)
    assert step.dtype == dtype
    np.testing.assert_array_equal(step, expected)


def windows(picture: Any, crop: tuple[int, int]) -> list[Any]:
    """Every crop of a picture, and its mirror image."""
    height, width = picture.shape[0] - crop[0] + 1, picture.shape[1] - crop[1] + 1
    cut = [picture[y : y + crop[0], x : x + crop[1]] for y in range(height) for x in range(width)]
    return cut + [window[:, ::-1] for window in cut]


def test_random_crops_and_flips_are_windows_of_their_picture() -> None:
    seen = set()
    for step in Feed((PICTURES, np.arange(12)), prepare=(Images(crop=(7, 7), flip=True), None), epochs=30):
        crop, row = step
        matches = [at for at, w in enumerate(windows(PICTURES[row], (7, 7))) if np.array_equal(w, crop)]
        assert len(matches) == 1
        seen.add(matches[0])
    assert seen == set(range(2 * 3 * 2))


def test_results_do_not_depend_on_workers_kinds_of_source_or_steps() -> None:
    def run(data: Any, **how: Any) -> Any:
        with Feed(data, prepare={"x": Images(crop=(6, 6), flip=True)}, epochs=2, seed=3, **how) as feed:
            return np.concatenate([step["x"].reshape(-1, 6, 6, 3).copy() for step in feed])

    expected = run({"x": PICTURES}, workers=0)
    rows = [{"x": picture} for picture in PICTURES]
    for how in ({"workers": 2}, {"workers": 2, "processes": True}, {"micro_batch": 4}, {"batches_per_step": 3}):
        np.testing.assert_array_equal(run({"x": PICTURES}, **how), expected)
        np.testing.assert_array_equal(run(rows, **how), expected)
        np.testing.assert_array_equal(run(lambda: iter(rows), **how), expected)


@pytest.mark.parametrize(
    ("how", "sample", "text"),
    [
        ({"layout": "NCHW"}, PICTURES[0], "layout is 'NCHW'; use 'HWC' or 'CHW'"),
        ({"mean": MEAN}, PICTURES[0], "mean and std must be given together"),
        ({"mean": (1, 2), "std": (1, 2)}, PICTURES[0], "2 means for 3 channels"),
        ({"crop": (10, 3)}, PICTURES[0], "cannot crop 9 x 8 to 10 x 3"),
        ({}, PICTURES[0].astype(float), "takes uint8[height, width, channels]; a sample is float64[9, 8, 3]"),
    ],
)
def test_mistakes(how: dict[str, Any], sample: Any, text: str) -> None:
    with pytest.raises(FeedError) as error:
        Feed([sample], prepare=Images(**how))
    assert text in str(error.value)
