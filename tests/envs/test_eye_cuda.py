"""The eye's CUDA path: on a GPU where there is one, else in numba's simulator, which runs the same Python."""

import os
import subprocess
import sys

import numpy as np
import pytest

from .eye_envs import own_eye, random_envs

SIMULATED = """
import sys
import numpy as np
from tests.envs.eye_envs import own_eye, random_envs
scene, environments = random_envs("infant", 2)
eye = own_eye(scene, 16, 12, device="cuda")
image = eye.render(*environments, np.array([3, 4], np.uint64))
again = eye.render(*environments, np.array([3, 4], np.uint64), 0)
assert image is not again
both = {"image": image.copy_to_host(), "clean": again.copy_to_host()}
biased = eye.render(*environments, np.array([3, 4], np.uint64), 2, True).copy_to_host()
np.savez(sys.argv[1], **both, biased=biased, labels=eye.segment(*environments))
"""


def test_simulated_cuda_equals_cpu(tmp_path):
    """The kernels in pure Python, a tiny image: same labels, same noise, same colours."""
    file = tmp_path / "seen.npz"
    simulator = {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}
    subprocess.run(
        [sys.executable, "-c", SIMULATED, str(file)], env={**os.environ, **simulator}, check=True, timeout=200
    )
    scene, envs = random_envs("infant", 2)
    eye, keys = own_eye(scene, 16, 12), np.array([3, 4], np.uint64)
    seen = np.load(file)
    assert np.array_equal(seen["labels"], eye.segment(*envs))
    assert np.array_equal(seen["image"], eye.render(*envs, keys))
    assert np.array_equal(seen["clean"], eye.render(*envs, keys, 0))
    assert np.array_equal(seen["biased"], eye.render(*envs, keys, 2, True))
    assert not np.array_equal(seen["biased"], seen["image"])


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["infant", "arm"])
def test_gpu_equals_cpu_but_for_rounding(name):
    scene, envs = random_envs(name, 64)
    keys = np.arange(64, dtype=np.uint64)
    ours, theirs = own_eye(scene), own_eye(scene, device="cuda")
    image = theirs.render(*envs, keys).copy_to_host().astype(int)
    assert (np.abs(image - ours.render(*envs, keys)) > 1).mean() < 0.001
    biased = theirs.render(*envs, keys, 2, True).copy_to_host().astype(int)
    assert (np.abs(biased - ours.render(*envs, keys, 2, True)) > 1).mean() < 0.001
    assert (theirs.segment(*envs) != ours.segment(*envs)).mean() < 0.001
