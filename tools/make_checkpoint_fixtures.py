"""Writes tests/data/numpy.npz and tests/data/numpy_compressed.npz: a checkpoint as numpy saves it anew.

    python3 tools/make_checkpoint_fixtures.py tests/data

Both hold the same arrays, some in float32 and some in float64; values are exact in both.
"""

import pathlib
import sys

import numpy as np

ARRAYS = {
    "head.weight": np.arange(6, dtype="<f4").reshape(2, 3) / 4 - 0.5,
    "head.bias": np.array([1.5, -2.0], dtype="<f8"),
    "scale": np.array(0.25, dtype="<f4"),
    "optimizer/exp_avg/head.weight": np.full((2, 3), 0.125, dtype="<f4"),
    "optimizer/exp_avg/head.bias": np.zeros(2, dtype="<f8"),
    "optimizer/exp_avg/scale": np.array(-1, dtype="<f4"),
    "optimizer/exp_avg_sq/head.weight": np.full((2, 3), 2.0, dtype="<f8"),
    "optimizer/exp_avg_sq/head.bias": np.ones(2, dtype="<f4"),
    "optimizer/exp_avg_sq/scale": np.array(3, dtype="<f8"),
    "optimizer/steps": np.array(7, dtype="<u8"),
    "meta.json": b'{"epoch": 3}',
}


def main():
    folder = pathlib.Path(sys.argv[1])
    np.savez(folder / "numpy.npz", **ARRAYS)
    np.savez_compressed(folder / "numpy_compressed.npz", **ARRAYS)


if __name__ == "__main__":
    main()
