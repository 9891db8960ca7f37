"""The Gymnasium ids. Light on purpose: `import mirrormark` must not load MuJoCo or compile anything."""

from typing import Any

import gymnasium

from mirrormark.envs import bodies


def register_envs() -> None:
    """`mirrormark/<Body>-v0` for every body, and the symbolic eye's ablation under its own id."""
    for name in bodies.names():
        title = bodies.get(name).title
        _register(f"mirrormark/{title}-v0", {"body": name})
        _register(f"mirrormark/{title}Symbolic-v0", {"body": name, "senses": ("cell", "proprioception")})


def _register(env_id: str, kwargs: dict[str, Any]) -> None:
    if env_id not in gymnasium.registry:
        gymnasium.register(
            env_id,
            entry_point="mirrormark.envs.gym_env:MirrorMarkEnv",
            vector_entry_point="mirrormark.envs.gym_env:MirrorMarkVectorEnv",
            kwargs=kwargs,
        )
