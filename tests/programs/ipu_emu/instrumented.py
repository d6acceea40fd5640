"""Mark work with PopVision's instrumentation library."""

import libpvti

channel = libpvti.createTraceChannel("training")


class Image:
    def crop(self):
        return 3


@libpvti.instrument_fn(channel)
def work():
    return 2


with libpvti.Tracepoint(channel, "epoch"):
    libpvti.Tracepoint.begin(channel, "load")
    libpvti.Tracepoint.end(channel, "load")
    libpvti.Tracepoint.end(channel, "load")
    assert work() == 2
image = Image()
libpvti.instrument(image, ["crop"], channel)
assert image.crop() + image.crop() == 6
libpvti.Graph("loss", "nat").addSeries("train").add(0.5)
