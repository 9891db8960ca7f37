"""The environments of a training run, as configuration, and the agent that fits them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from gymnasium import spaces

from mirrormark.agent.agent import Agent
from mirrormark.agent.senses import SenseSpec
from mirrormark.config import AgentConfig
from mirrormark.envs.babbling import Babbling, BabblingConfig
from mirrormark.envs.mark import MarkConfig
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.envs.senses import ABLATION, DEFAULT_SENSES, Device, Vision
from mirrormark.training import build


@dataclass(frozen=True)
class EnvConfig:
    """Body, mirror, mark, motor babbling and senses of a training run."""

    body: str = "infant"
    """Which body (ours; the paper's is not public)."""
    tone: str | None = None
    """The body's passive tone by name; None takes its default (infant.md)."""
    tone_scale: float = 1.0
    """Factor on the tone's stiffness (ours)."""
    mirror: MirrorConfig = field(default_factory=MirrorConfig)
    """Where the mirror is and what it does."""
    mirrorless_share: float = 0.0
    """Share of a training run's episodes before a bare wall or a covered mirror, in turn (ours): else an exam
    without a mirror would be the first of its kind, and what the body does there would say little."""
    mark: MarkConfig = field(default_factory=MarkConfig)
    """The mark's look, its sites and what takes it off."""
    babbling: BabblingConfig = field(default_factory=BabblingConfig)
    """Motor babbling."""
    senses: tuple[str, ...] = DEFAULT_SENSES
    """The agent's senses; "cell" instead of "vision" is the symbolic eye, an ablation."""
    biased_noise: bool = False
    """Vision's noise is {-2..1} instead of {-2..2} (D17; public code: biased)."""
    threads: int | None = None
    """Threads of the physics on the CPU; None: one for each core."""

    def __post_init__(self) -> None:
        if not 0 <= self.mirrorless_share < 1:
            raise ValueError("env.mirrorless_share is a share: give a number from 0 to below 1.")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"env.threads is {self.threads}: give at least 1, or leave it out.")

    @property
    def ablation(self) -> str | None:
        """What every output of a run with the symbolic eye must say, else None."""
        return ABLATION if "cell" in self.senses else None

    def mirrors(self, n: int) -> list[MirrorConfig]:
        """Mirrors of a run's n environments; those that reflect nothing are spread evenly among them."""
        turn = np.floor(np.arange(n + 1) * self.mirrorless_share).astype(int)
        bare = [replace(self.mirror, kind=kind, delay_control_steps=0) for kind in ("absent", "covered")]
        return [bare[turn[i] % 2] if turn[i + 1] > turn[i] else self.mirror for i in range(n)]

    def make_envs(
        self,
        n: int,
        device: Device = "cpu",
        mirror: MirrorConfig | Sequence[MirrorConfig] | None = None,
        mark: MarkConfig | None = None,
        measure_view: bool = False,
        measure_distance: bool = True,
    ) -> MirrorMarkEnvs:
        """n such environments; an exam may exchange mirror and mark. What is measured goes into info."""
        eye = Vision(biased_noise=self.biased_noise)
        return MirrorMarkEnvs(
            self.body,
            n,
            mirror=mirror or self.mirror,
            mark=mark or self.mark,
            tone=self.tone,
            tone_scale=self.tone_scale,
            senses=[eye if name == eye.name else name for name in self.senses],
            device=device,
            threads=self.threads,
            measure_view=measure_view,
            measure_distance=measure_distance,
        )


def babbling_of(setup: EnvConfig, envs: MirrorMarkEnvs) -> Babbling:
    """Motor babbling for these environments."""
    return Babbling(setup.babbling, envs.actions)


def senses_of(envs: MirrorMarkEnvs) -> dict[str, SenseSpec]:
    """Kind and size of each sense, read off its space: all that the agent knows of the environments."""
    specs = {}
    for sense in envs.senses:
        space = sense.space()
        assert isinstance(space, spaces.Box)
        if space.dtype == np.uint8:
            specs[sense.name] = SenseSpec("image", space.shape[0])
        elif np.issubdtype(space.dtype, np.floating):
            specs[sense.name] = SenseSpec("vector", space.shape[0])
        else:
            specs[sense.name] = SenseSpec("symbol", int(space.high.max()) + 1)
    return specs


def build_agent(config: AgentConfig, envs: MirrorMarkEnvs) -> Agent:
    """A new agent for these environments, its weights drawn from torch's default random numbers."""
    return build.build_agent(config, senses_of(envs), envs.actions)
