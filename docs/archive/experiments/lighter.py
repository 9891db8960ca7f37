"""Pictures for docs/images in 256 colours, a third of their bytes: what is tracked has a budget (35 MiB).

    python experiments/lighter.py PICTURE.png ...

Colours are chosen to cover all that occur, however rare: a palette by frequency loses the mark's green.
"""

import sys
from pathlib import Path

from PIL import Image


def lighten(path: Path) -> None:
    """In place."""
    before, picture = path.stat().st_size, Image.open(path).convert("RGB")
    palette = Image.Quantize.MAXCOVERAGE
    picture.quantize(256, palette, kmeans=3, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {before} -> {path.stat().st_size} bytes")


for name in sys.argv[1:]:
    lighten(Path(name))
