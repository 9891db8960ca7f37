"""What needs a GPU or OpenGL skips with a reason where there is none; CI sets MIRRORMARK_REQUIRE_GL."""

import os
import subprocess
import sys
from ctypes.util import find_library
from functools import lru_cache

import pytest

import mirrormark  # noqa: F401  (before torch and numba: it tells OpenMP's threads not to spin)

# MuJoCo chooses its OpenGL when it is imported, so the choice must be made before any test module is.
for _library, _backend in (("EGL", "egl"), ("OSMesa", "osmesa")):
    if find_library(_library):
        os.environ.setdefault("MUJOCO_GL", _backend)


@lru_cache(maxsize=1)
def _gl_problem() -> str | None:
    """Render once in another process: a broken OpenGL may kill it."""
    if "MUJOCO_GL" not in os.environ:
        return "no OpenGL here (install libegl1 and libgl1-mesa-dri)"
    code = "import mujoco; m = mujoco.MjModel.from_xml_string('<mujoco/>'); mujoco.Renderer(m, 8, 8).render()"
    tried = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    return None if tried.returncode == 0 else f"OpenGL ({os.environ['MUJOCO_GL']}) does not work here"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "gl" in item.keywords and (problem := _gl_problem()):
            if os.environ.get("MIRRORMARK_REQUIRE_GL"):
                pytest.exit(f"MIRRORMARK_REQUIRE_GL is set, but: {problem}", returncode=1)
            item.add_marker(pytest.mark.skip(reason=problem))
        if "gpu" in item.keywords:
            import torch

            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="no CUDA GPU here"))
