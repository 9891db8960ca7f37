"""The 3-D scene of the page: room, mirror, body and mark, and a true reflection for every viewer."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import viser
from numpy.typing import NDArray

from mirrormark.envs.mark import HALF_THICKNESS_M
from mirrormark.envs.mirror import CLOTH, MirrorKind, Pane
from mirrormark.envs.raycaster.eye import Eye, camera_at
from mirrormark.envs.scene import Scene
from mirrormark.envs.senses import SimState
from mirrormark.lab.session import Session, Snapshot
from mirrormark.lab.shapes import Instances, instances_of, quat_of, unit_meshes

TEXELS = (420, 280)
"""Rows and columns of the picture on the pane."""
_RAYS = 420
"""Side of the view through which the pane is seen before it is laid flat."""
View = Literal["shoulder", "side", "eye"]


class Pose(NamedTuple):
    """Of a viewer's camera."""

    position: tuple[float, float, float]
    look_at: tuple[float, float, float]
    fov_rad: float
    up: tuple[float, float, float] = (0.0, 0.0, 1.0)


VIEWS: dict[View, Pose] = {
    "shoulder": Pose((-0.45, -0.30, 0.36), (0.10, 0.0, 0.05), 0.68),
    "side": Pose((0.05, -0.75, 0.25), (0.05, 0.0, 0.03), 0.70),
}
"""Over its shoulder, some 35° to the side: the body at work, and its face in the mirror."""


class Stage:
    """Draws one session for all tabs; only the pane's picture is each viewer's own."""

    def __init__(self, server: viser.ViserServer, session: Session) -> None:
        self.server, self.session = server, session
        self._meshes = unit_meshes()
        self._built, self._shown = -1, None
        self._panes: dict[int, _ViewersPane] = {}
        self._set_light()
        first, camera = VIEWS["shoulder"], server.initial_camera
        camera.position, camera.look_at = first.position, first.look_at
        camera.fov, camera.near = first.fov_rad, 0.005

    def _set_light(self) -> None:
        """Soft light from everywhere, a key from the mirror's side as in the eye's world, one from behind."""
        scene = self.server.scene
        scene.world_axes.visible = False
        scene.configure_default_lights(False)
        scene.configure_environment_map(None)
        scene.add_light_ambient("/light/all", intensity=1.5)
        scene.add_light_directional("/light/key", intensity=0.6, position=(0.55, 0.25, 0.75))
        scene.add_light_directional("/light/behind", intensity=0.8, position=(-0.6, -0.5, 0.9))

    def view(self, which: View, snapshot: Snapshot) -> Pose:
        """Where to stand: a fixed place, or where its eye is at this instant."""
        if which != "eye":
            return VIEWS[which]
        scene, state = self.session.world.envs.scene, snapshot.sim_state
        head, place = state.xmat[0, scene.eye_body_id], state.xpos[0, scene.eye_body_id]
        axes = head @ scene.eye_mat  # x right, y up, looking along -z
        eye = place + head @ scene.eye_pos_m
        return Pose(tuple(eye), tuple(eye - 0.2 * axes[:, 2]), scene.eye_fovy_rad, tuple(axes[:, 1]))

    def show(self, snapshot: Snapshot) -> None:
        """Move everything to where it is now; what has not changed since the last time is not sent again."""
        with self.session.lock:
            scene, mirror, mark = (
                self.session.world.envs.scene,
                self.session.world.mirror,
                self.session.world.envs.mark,
            )
        if snapshot.sim_state is not self._shown:
            self._shown = snapshot.sim_state
            self._move(scene, snapshot, mirror.kind, mark.rgb)
        self._show_reflections(scene, snapshot, mirror.reflects)

    def _move(
        self, scene: Scene, snapshot: Snapshot, kind: MirrorKind, rgb: tuple[float, float, float]
    ) -> None:
        with self.server.atomic():
            if snapshot.build != self._built:
                self._build(scene, snapshot)
            xpos, xmat = snapshot.sim_state.xpos[0], snapshot.sim_state.xmat[0]
            for handle, instances in self._body:
                handle.batched_positions, handle.batched_wxyzs = (
                    part.astype(np.float32) for part in instances.placed(xpos, xmat)
                )
            for part in self._frame:
                part.visible = kind != "absent"
            self._cloth.visible = kind == "covered"
            self._show_mark(snapshot, rgb)

    def _show_mark(self, snapshot: Snapshot, rgb: tuple[float, float, float]) -> None:
        self._mark.visible = snapshot.mark_on
        if snapshot.mark_on:
            marks, body = snapshot.sim_state.marks, int(snapshot.sim_state.marks.body[0])
            xmat = snapshot.sim_state.xmat[0, body]
            self._mark.position = snapshot.sim_state.xpos[0, body] + xmat @ marks.pos[0]
            self._mark.wxyz = quat_of(xmat @ marks.mat[0])
            self._mark.color = tuple(round(255 * c) for c in rgb)  # pyright: ignore[reportAttributeAccessIssue]

    # Building -----------------------------------------------------------------------------------------------

    def _build(self, scene: Scene, snapshot: Snapshot) -> None:
        for name in ("/room", "/mirror", "/body"):
            self.server.scene.remove_by_name(name)
        self._built = snapshot.build
        for pane in self._panes.values():
            pane.forget()
        self._body = [
            (self._batch(mesh, instances, snapshot), instances)
            for mesh, instances in instances_of(scene.model).items()
        ]
        self._mark = self.server.scene.add_cylinder(
            "/body/mark",
            float(snapshot.sim_state.marks.radius_m[0]),
            2 * HALF_THICKNESS_M,
            radial_segments=48,
            visible=False,
        )
        self._build_room(scene)
        self._build_mirror(scene)

    def _batch(self, mesh: str, instances: Instances, snapshot: Snapshot) -> viser.BatchedMeshHandle:
        pos, quat = instances.placed(snapshot.sim_state.xpos[0], snapshot.sim_state.xmat[0])
        return self.server.scene.add_batched_meshes_simple(
            f"/body/{mesh}",
            *self._meshes[mesh],
            batched_wxyzs=quat,
            batched_positions=pos,
            batched_scales=instances.scale,
            batched_colors=instances.rgb,
            lod="off",
            cast_shadow=False,
            receive_shadow=False,
        )

    def _build_room(self, scene: Scene) -> None:
        """Walls are drawn from inside only, so that a viewer outside the room still sees inside."""
        model = scene.model
        middle = np.mean([model.geom(g).pos for g in _named(scene, "room_")], axis=0)
        for g in _named(scene, "room_"):
            half, pos = model.geom_size[g], model.geom_pos[g]
            axis = int(np.argmin(half))
            side = np.sign(middle[axis] - pos[axis])
            across, along = (axis + 1) % 3, (axis + 2) % 3
            corners = np.tile(pos, (4, 1))
            corners[:, axis] += side * half[axis]
            corners[:, across] += half[across] * np.array([-1, 1, 1, -1])
            corners[:, along] += half[along] * np.array([-1, -1, 1, 1])
            faces = np.array([(0, 1, 2), (0, 2, 3)])
            self.server.scene.add_mesh_simple(
                f"/room/{g}",
                corners.astype(np.float32),
                (faces if side > 0 else faces[:, ::-1]).astype(np.uint32),
                color=_rgb(model.geom_rgba[g]),
                cast_shadow=False,
                receive_shadow=False,
            )

    def _build_mirror(self, scene: Scene) -> None:
        model = scene.model
        self._frame = [self._box(scene, g, _rgb(model.geom_rgba[g])) for g in _named(scene, "frame_")]
        self._frame.append(self._box(scene, scene.mirror_geom_id, (40, 44, 50)))
        self._cloth = self._box(scene, scene.mirror_geom_id, _rgb(CLOTH), "/mirror/cloth", 0.0012)

    def _box(
        self, scene: Scene, g: int, rgb: tuple, name: str | None = None, out_m: float = 0.0
    ) -> viser.BoxHandle:
        return self.server.scene.add_box(
            name or f"/mirror/{g}",
            dimensions=tuple(2 * scene.model.geom_size[g]),
            position=scene.model.geom_pos[g] + out_m * scene.pane.mat[:, 2],
            wxyz=scene.model.geom_quat[g],
            color=rgb,
            cast_shadow=False,
            receive_shadow=False,
        )

    # Reflections --------------------------------------------------------------------------------------------

    def _show_reflections(self, scene: Scene, snapshot: Snapshot, reflects: bool) -> None:
        clients = self.server.get_clients()
        for gone in set(self._panes) - set(clients):
            del self._panes[gone]
        for key, client in clients.items():
            pane = self._panes.setdefault(key, _ViewersPane(client))
            try:
                pane.show(scene, snapshot, reflects)
            except Exception:
                # A tab may close between two lines of this loop; its pane is dropped with it.
                if key in self.server.get_clients():
                    raise


class _ViewersPane:
    """The mirror's picture for one tab: it depends on where that tab's camera is."""

    def __init__(self, client: viser.ClientHandle) -> None:
        self._client = client
        self._image: viser.ImageHandle | None = None
        self.forget()

    def forget(self) -> None:
        """The mirror has moved: make everything anew."""
        self._pane_view: PaneEye | None = None
        self._viewer = self._shown = None
        if self._image is not None:
            self._image.remove()
            self._image = None

    def show(self, scene: Scene, snapshot: Snapshot, reflects: bool) -> None:
        viewer = np.asarray(self._client.camera.position, float)
        visible = reflects and in_front(scene.pane, viewer)
        moved = self._viewer is None or not np.array_equal(viewer, self._viewer)
        if visible and (moved or snapshot.sim_state is not self._shown):
            self._shown = snapshot.sim_state
            if self._pane_view is None or moved:
                self._pane_view, self._viewer = PaneEye(scene, viewer), viewer
            picture = self._pane_view.picture(snapshot.sim_state)
            if self._image is None:
                self._image = self._lay(scene, picture)
            else:
                self._image.image = picture
        if self._image is not None:
            self._image.visible = visible

    def _lay(self, scene: Scene, picture: np.ndarray) -> viser.ImageHandle:
        pane = scene.pane
        axes = np.stack([pane.mat[:, 0], -pane.mat[:, 1], -pane.mat[:, 2]], axis=1)
        return self._client.scene.add_image(
            "/reflection",
            picture,
            2 * float(pane.half[0]),
            2 * float(pane.half[1]),
            format="jpeg",
            jpeg_quality=85,
            wxyz=quat_of(axes),
            position=pane.centre + 0.0006 * pane.mat[:, 2],
            cast_shadow=False,
            receive_shadow=False,
        )


class PaneEye(Eye):
    """A viewer's eye that sees nothing but the mirror, however much stands between them.

    The page draws what stands before the mirror itself; here it would leave a second outline.
    """

    def __init__(self, scene: Scene, viewer: NDArray[np.float64]) -> None:
        self.pane = scene.pane
        away = viewer - self.pane.centre
        distance = float(np.linalg.norm(away))
        corners = _corners(self.pane) - viewer
        cosines = corners @ -away / (np.linalg.norm(corners, axis=1) * distance)
        half_rad = min(math.acos(float(np.clip(cosines.min(), -1, 1))) * 1.02, math.radians(80))
        camera = camera_at(tuple(viewer), tuple(self.pane.centre), 2 * half_rad)
        super().__init__(scene.model, camera, _RAYS, _RAYS, mark_in_direct_view=False)
        self._static = self._static._replace(in_direct_view=np.zeros_like(self._static.in_direct_view))
        self._pick = self._texels(viewer)

    def _texels(self, viewer: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row and column of the view that each texel of the pane shows."""
        rows, columns = TEXELS
        wide, high = 0.995 * self.pane.half  # a ray beside the pane would show what is behind it
        down = high * (1 - (2 * np.arange(rows) + 1) / rows)
        across = wide * ((2 * np.arange(columns) + 1) / columns - 1)
        spots = self.pane.centre + (
            across[None, :, None] * self.pane.mat[:, 0] + down[:, None, None] * self.pane.mat[:, 1]
        )
        right, up, back = ((spots - viewer) @ self.camera.mat).transpose(2, 0, 1)
        scale = _RAYS / 2 / math.tan(self.camera.fovy_rad / 2)
        depth = np.maximum(-back, 1e-6)
        pick_row = _RAYS / 2 - up / depth * scale
        pick_column = _RAYS / 2 + right / depth * scale
        return _within(pick_row), _within(pick_column)

    def picture(self, sim_state: SimState) -> NDArray[np.uint8]:
        """The pane as the viewer sees it, laid flat (rows, columns, 3), upright for the body."""
        seen = self.render(
            sim_state.xpos, sim_state.xmat, sim_state.mirror_xpos, sim_state.mirror_xmat, sim_state.panes,
            sim_state.marks, sim_state.noise_key, 0,
        )[0]  # fmt: skip
        return seen[self._pick]


def in_front(pane: Pane, viewer: NDArray[np.float64]) -> bool:
    """Whether the viewer can see into the mirror; nearer than 2 cm there is nothing to see."""
    return float((viewer - pane.centre) @ pane.mat[:, 2]) > 0.02


def _corners(pane: Pane) -> NDArray[np.float64]:
    signs = np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)])
    return pane.centre + (signs * pane.half) @ pane.mat[:, :2].T


def _within(pick: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.clip(np.floor(pick), 0, _RAYS - 1).astype(np.int64)


def _named(scene: Scene, start: str) -> list[int]:
    return [g for g in range(scene.model.ngeom) if scene.model.geom(g).name.startswith(start)]


def _rgb(colour: Any) -> tuple[int, int, int]:
    red, green, blue = (round(255 * float(c)) for c in colour[:3])
    return red, green, blue
