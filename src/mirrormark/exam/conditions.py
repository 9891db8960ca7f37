"""The exam's conditions: who acts, before which mirror, with which mark. `register` adds another.

Each condition is a change of the agent's own environment, so an agent is examined before its own mirror. All
conditions of an agent run in the same worlds (exam_seed: same reset, same site), so they can be compared
world by world. The yoked site needs no runs of its own: its touches are timed in the exam's runs. Chance is
shared by all agents of a body.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from mirrormark.envs.mark import MarkConfig
from mirrormark.envs.mirror import MirrorConfig, MirrorKind
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.envs.senses import Device
from mirrormark.exam.hidden_site import hidden_site
from mirrormark.training.env_config import EnvConfig

Acting = Literal["agent", "untrained", "iid", "babbling", "oracle"]
Role = Literal["exam", "negative", "reported"]


@dataclass(frozen=True)
class Condition:
    """One way to run the exam."""

    name: str
    title: str
    """As figures and report call it."""
    role: Role = "reported"
    """exam: what is judged; negative: must be beaten to pass; reported: shown, not judged."""
    agent: Acting = "agent"
    mirror: MirrorKind = "present"
    """The mirror's place and size are the agent's own; what it does is the condition's."""
    delay_control_steps: int = 0
    """Age of the reflection in a delayed mirror."""
    yaw_change_rad: float = 0.0
    """Added to the turn of the agent's mirror."""
    distance_change_m: float = 0.0
    """Added to the distance of the agent's mirror."""
    sham: bool = False
    """The mark is timed and touched as ever, but cannot be seen."""
    recoloured: bool = False
    """The agent's own mark with red and green exchanged; a mark that this leaves as it is becomes its
    negative."""
    radius_scale: float = 1.0
    """Factor on the radius of the agent's mark."""
    out_of_sight: bool = False
    """The mark is where the body reaches it but its mirror does not show it (see hidden_site.py)."""
    costless: bool = False
    """For agents trained without the self-prior's cost, and only for them."""

    @property
    def sees(self) -> bool:
        """Whether pictures are needed: the others run on physics alone, ten times as fast."""
        return self.agent in ("agent", "untrained")

    @property
    def per_agent(self) -> bool:
        """Run once for each checkpoint; else once for the body."""
        return self.agent in ("agent", "untrained")

    def make_envs(self, setup: EnvConfig, n: int, device: Device = "cpu") -> MirrorMarkEnvs:
        """n worlds of this condition, all else as the agent's own; `device` is the eye's."""
        return setup.make_envs(n, device, mirror=self.mirror_of(setup), mark=self.mark_of(setup))

    def mirror_of(self, setup: EnvConfig) -> MirrorConfig:
        own = setup.mirror
        return replace(
            own,
            kind=self.mirror,
            delay_control_steps=self.delay_control_steps,
            yaw_rad=own.yaw_rad + self.yaw_change_rad,
            distance_m=own.distance_m + self.distance_change_m,
        )

    def mark_of(self, setup: EnvConfig) -> MarkConfig:
        own = setup.mark
        mark = replace(own, radius_m=self.radius_scale * own.radius_m)
        if self.recoloured:
            red, green, blue = own.rgb
            near = abs(red - green) < 0.2
            mark = replace(mark, rgb=(1 - red, 1 - green, 1 - blue) if near else (green, red, blue))
        if self.out_of_sight:
            found = hidden_site(_before_a_mirror(setup))
            if found is None:
                raise ValueError(f"the {setup.body} has no site within reach that its mirror never shows")
            mark = replace(mark, surface=found.surface, site_m=found.site_m, forward_angle_rad=math.pi)
        return mark

    def why_not(self, setup: EnvConfig) -> str | None:
        """Why this body and mirror cannot have the condition, in words; None: they can."""
        try:
            self.make_envs(replace(setup, senses=("proprioception",)), 1).reset(seed=0)
        except ValueError as reason:
            return str(reason)
        return None


def _before_a_mirror(setup: EnvConfig) -> EnvConfig:
    """The same before a mirror that reflects, whatever its own does; the eye's kind does not matter."""
    mirror = replace(setup.mirror, kind="present", delay_control_steps=0)
    return replace(setup, mirror=mirror, senses=("proprioception",), biased_noise=False)


EXAM = "mirror"
"""The condition that is judged."""
YOKED = "yoked"
"""Not a condition of its own: the exam's runs, scored at a second site that nobody sees."""

_TILT_RAD = math.radians(10.0)

_conditions: dict[str, Condition] = {}


def register(condition: Condition) -> Condition:
    """Add a condition; the same name again must be the same condition."""
    if condition.name == YOKED or _conditions.setdefault(condition.name, condition) != condition:
        raise ValueError(f"condition name {condition.name!r} is taken: give the new condition another name.")
    return condition


for _condition in (
    Condition(EXAM, "mirror and mark", "exam"),
    Condition("absent", "no mirror", "negative", mirror="absent"),
    Condition("covered", "mirror covered", "negative", mirror="covered"),
    Condition("sham", "sham mark (invisible)", "negative", sham=True),
    Condition("untrained", "untrained agent", "negative", "untrained"),
    Condition("iid", "random actions, i.i.d.", "negative", "iid"),
    Condition("babbling", "motor babbling", "negative", "babbling"),
    Condition("oracle", "scripted oracle (knows the site)", "reported", "oracle"),
    Condition("delayed-0.5s", "mirror delayed 0.5 s", mirror="delayed", delay_control_steps=10),
    Condition("delayed-1s", "mirror delayed 1 s", mirror="delayed", delay_control_steps=20),
    Condition("unseen", "mark out of the mirror's view", out_of_sight=True),
    Condition("tilt+10", "mirror turned +10°", yaw_change_rad=_TILT_RAD),
    Condition("tilt-10", "mirror turned −10°", yaw_change_rad=-_TILT_RAD),
    Condition("nearer", "mirror 3 cm nearer", distance_change_m=-0.03),
    Condition("farther", "mirror 3 cm farther", distance_change_m=0.03),
    Condition("recoloured", "mark of another colour", recoloured=True),
    Condition("small", "smaller mark (0.6 × radius)", radius_scale=0.6),
    Condition("costless", "trained without the self-prior's cost", costless=True),
):
    register(_condition)


def get(name: str) -> Condition:
    if name not in _conditions:
        raise ValueError(f"condition {name!r} is unknown: use one of {', '.join(_conditions)}.")
    return _conditions[name]


def names(role: Role | None = None) -> tuple[str, ...]:
    return tuple(name for name, condition in _conditions.items() if role in (None, condition.role))


def title(name: str) -> str:
    if name == YOKED:
        return "yoked site (same runs)"
    return _conditions[name].title if name in _conditions else name
