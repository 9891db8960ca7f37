"""The exam's conditions: who acts, before which mirror, with which mark. `register` adds another.

All conditions of a mind run in the same worlds (exam_seed: same reset, same site), so they can be compared
world by world. The yoked site needs no runs of its own: its touches are timed in the exam's runs. Chance is
shared by all minds of a body.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from mirrormark.life.setup import WorldSetup
from mirrormark.world.bodies import get as get_body
from mirrormark.world.mark import MarkConfig
from mirrormark.world.mirror import MirrorConfig
from mirrormark.world.senses import Device
from mirrormark.world.worlds import Worlds

Player = Literal["mind", "untrained", "iid", "everyday", "oracle"]
Role = Literal["exam", "negative", "reported"]


@dataclass(frozen=True)
class Condition:
    """One way to run the exam."""

    name: str
    title: str
    """As figures and report call it."""
    role: Role = "reported"
    """exam: what is judged; negative: must be beaten to pass; reported: shown, never a gate."""
    player: Player = "mind"
    mirror: MirrorConfig = field(default_factory=MirrorConfig)
    mark: MarkConfig = field(default_factory=MarkConfig)
    sham: bool = False
    """The mark is timed and touched as ever, but cannot be seen."""
    beside_head: bool = False
    """Stick the mark under the left ear (of the first surface): in reach, but not shown by the mirror."""
    distance_change_m: float = 0.0
    """Added to the mirror's distance."""
    costless: bool = False
    """For minds trained without the self-prior's cost, and only for them."""

    @property
    def sees(self) -> bool:
        """Whether anyone looks: players without eyes run on physics alone, ten times as fast."""
        return self.player in ("mind", "untrained")

    @property
    def per_mind(self) -> bool:
        """Run once for each checkpoint; else once for the body."""
        return self.player in ("mind", "untrained")

    def worlds(self, setup: WorldSetup, n: int, device: Device = "cpu") -> Worlds:
        """n worlds of this condition, with the body, tone and senses of a life; `device` is the eye's."""
        mirror = replace(self.mirror, distance_m=self.mirror.distance_m + self.distance_change_m)
        mark = self.mark
        if self.beside_head:
            mark = replace(
                mark,
                surface=get_body(setup.body).mark_surfaces[0].geom,
                site_m=(-1.8, 10.0, -7.0),
                forward_angle_rad=math.pi,  # beside the head, where no mark of a life may be
            )
        return setup.worlds(n, device, mirror=mirror, mark=mark)


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
    Condition("absent", "no mirror", "negative", mirror=MirrorConfig(kind="absent")),
    Condition("covered", "mirror covered", "negative", mirror=MirrorConfig(kind="covered")),
    Condition("sham", "sham mark (invisible)", "negative", sham=True),
    Condition("untrained", "untrained mind", "negative", "untrained"),
    Condition("iid", "random actions, i.i.d.", "negative", "iid"),
    Condition("everyday", "everyday movement", "negative", "everyday"),
    Condition("oracle", "scripted oracle (told the site)", "reported", "oracle"),
    Condition(
        "delayed-0.5s", "mirror delayed 0.5 s", mirror=MirrorConfig(kind="delayed", delay_control_steps=10)
    ),
    Condition(
        "delayed-1s", "mirror delayed 1 s", mirror=MirrorConfig(kind="delayed", delay_control_steps=20)
    ),
    Condition("unseen", "mark out of the mirror's view", beside_head=True),
    Condition("tilt+10", "mirror turned +10°", mirror=MirrorConfig(yaw_rad=_TILT_RAD)),
    Condition("tilt-10", "mirror turned −10°", mirror=MirrorConfig(yaw_rad=-_TILT_RAD)),
    Condition("nearer", "mirror 3 cm nearer", distance_change_m=-0.03),
    Condition("farther", "mirror 3 cm farther", distance_change_m=0.03),
    Condition("red", "red mark", mark=MarkConfig(rgb=(0.85, 0.05, 0.10))),
    Condition("small", "smaller mark (r 1.2 cm)", mark=MarkConfig(radius_m=0.012)),
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
