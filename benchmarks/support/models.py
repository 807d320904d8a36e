"""Shapes of the parameters of well-known networks, float32, in the order in which their frameworks list them."""

Shape = tuple[int, ...]


def resnet50() -> list[Shape]:
    """Return the shapes of ResNet-50: 161 tensors, 102 MB (He et al. 2015, table 1)."""
    shapes: list[Shape] = [(64, 3, 7, 7), (64,), (64,)]
    before = 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for number in range(blocks):
            shapes += [(width, before, 1, 1), (width,), (width,)]
            shapes += [(width, width, 3, 3), (width,), (width,)]
            shapes += [(width * 4, width, 1, 1), (width * 4,), (width * 4,)]
            if number == 0:
                shapes += [(width * 4, before, 1, 1), (width * 4,), (width * 4,)]
            before = width * 4
    return [*shapes, (1000, 2048), (1000,)]


def vgg16() -> list[Shape]:
    """Return the shapes of VGG-16: 32 tensors, 553 MB (Simonyan and Zisserman 2014, column D)."""
    shapes: list[Shape] = []
    before = 3
    for width in (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512):
        shapes += [(width, before, 3, 3), (width,)]
        before = width
    for inputs, outputs in ((512 * 7 * 7, 4096), (4096, 4096), (4096, 1000)):
        shapes += [(outputs, inputs), (outputs,)]
    return shapes


def lstm() -> list[Shape]:
    """Return the shapes of the medium language model of Zaremba et al. 2014 (section 4.1): 79 MB.

    It has 650 units, two layers and 10,000 words.
    """
    words, units = 10_000, 650
    layer: list[Shape] = [(4 * units, units), (4 * units, units), (4 * units,), (4 * units,)]
    return [(words, units), *layer, *layer, (words, units), (words,)]


def one_tensor() -> list[Shape]:
    """Return the shape of a single tensor of 105 MB."""
    return [(26_250_000,)]


def table() -> list[Shape]:
    """Return the shape of an embedding of 1,000,000 words, 256 MB."""
    return [(1_000_000, 64)]


def small_tensors() -> list[Shape]:
    """Return the shapes of 2,000 tensors of 1 KB."""
    return [(256,)] * 2000


MODELS = {
    "tensor": one_tensor,
    "resnet50": resnet50,
    "vgg16": vgg16,
    "lstm": lstm,
    "small": small_tensors,
    "table": table,
}

TOUCHED = {"table": 2000}
"""Rows of its first tensor that a step touches, for models whose gradients are row-sparse."""
