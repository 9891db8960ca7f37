"""The 3-D scene of the page: room, mirror, body and mark, and a true reflection for every viewer."""

from typing import Any

import numpy as np
import viser

from mirrormark.envs.mark import HALF_THICKNESS_M
from mirrormark.envs.mirror import CLOTH, MirrorKind
from mirrormark.envs.scene import Scene
from mirrormark.lab.reflection import PaneEye, in_front
from mirrormark.lab.session import Look, Session
from mirrormark.lab.shapes import Instances, instances_of, quat_of, unit_meshes

VIEW_FROM_M, VIEW_AT_M, VIEW_FOV_RAD = (-0.42, -0.22, 0.40), (0.14, -0.02, 0.05), 0.80
"""Over its shoulder: the body from behind, its face in the mirror."""


class Stage:
    """Draws one session for all tabs; only the pane's picture is each viewer's own."""

    def __init__(self, server: viser.ViserServer, session: Session) -> None:
        self.server, self.session = server, session
        self._meshes = unit_meshes()
        self._place, self._shown = -1, None
        self._panes: dict[int, _ViewersPane] = {}
        self._set_light()
        server.initial_camera.position, server.initial_camera.look_at = VIEW_FROM_M, VIEW_AT_M
        server.initial_camera.fov, server.initial_camera.near = VIEW_FOV_RAD, 0.005

    def _set_light(self) -> None:
        """Soft light from everywhere, a key from the mirror's side as in the eye's world, one from behind."""
        scene = self.server.scene
        scene.world_axes.visible = False
        scene.configure_default_lights(False)
        scene.configure_environment_map(None)
        scene.add_light_ambient("/light/all", intensity=1.5)
        scene.add_light_directional("/light/key", intensity=0.6, position=(0.55, 0.25, 0.75))
        scene.add_light_directional("/light/behind", intensity=0.8, position=(-0.6, -0.5, 0.9))

    def show(self, look: Look) -> None:
        """Move everything to where it is now; what has not changed since the last time is not sent again."""
        with self.session.lock:
            scene, mirror, mark = (
                self.session.world.envs.scene,
                self.session.world.mirror,
                self.session.world.envs.mark,
            )
        if look.sim_state is not self._shown:
            self._shown = look.sim_state
            self._move(scene, look, mirror.kind, mark.rgb)
        self._show_reflections(scene, look, mirror.reflects)

    def _move(self, scene: Scene, look: Look, kind: MirrorKind, rgb: tuple[float, float, float]) -> None:
        with self.server.atomic():
            if look.place != self._place:
                self._build(scene, look)
            xpos, xmat = look.sim_state.xpos[0], look.sim_state.xmat[0]
            for handle, instances in self._body:
                handle.batched_positions, handle.batched_wxyzs = (
                    part.astype(np.float32) for part in instances.placed(xpos, xmat)
                )
            for part in self._frame:
                part.visible = kind != "absent"
            self._cloth.visible = kind == "covered"
            self._show_mark(look, rgb)

    def _show_mark(self, look: Look, rgb: tuple[float, float, float]) -> None:
        self._mark.visible = look.mark_on
        if look.mark_on:
            marks, body = look.sim_state.marks, int(look.sim_state.marks.body[0])
            xmat = look.sim_state.xmat[0, body]
            self._mark.position = look.sim_state.xpos[0, body] + xmat @ marks.pos[0]
            self._mark.wxyz = quat_of(xmat @ marks.mat[0])
            self._mark.color = tuple(round(255 * c) for c in rgb)  # pyright: ignore[reportAttributeAccessIssue]

    # Building -----------------------------------------------------------------------------------------------

    def _build(self, scene: Scene, look: Look) -> None:
        for name in ("/room", "/mirror", "/body"):
            self.server.scene.remove_by_name(name)
        self._place = look.place
        for pane in self._panes.values():
            pane.forget()
        self._body = [
            (self._batch(mesh, instances, look), instances)
            for mesh, instances in instances_of(scene.model).items()
        ]
        self._mark = self.server.scene.add_cylinder(
            "/body/mark",
            float(look.sim_state.marks.radius_m[0]),
            2 * HALF_THICKNESS_M,
            radial_segments=48,
            visible=False,
        )
        self._build_room(scene)
        self._build_mirror(scene)

    def _batch(self, mesh: str, instances: Instances, look: Look) -> viser.BatchedMeshHandle:
        pos, quat = instances.placed(look.sim_state.xpos[0], look.sim_state.xmat[0])
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
        """Walls are drawn from inside only, so that a viewer may step out of the room and still look in."""
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

    def _show_reflections(self, scene: Scene, look: Look, reflects: bool) -> None:
        clients = self.server.get_clients()
        for gone in set(self._panes) - set(clients):
            del self._panes[gone]
        for key, client in clients.items():
            pane = self._panes.setdefault(key, _ViewersPane(client))
            try:
                pane.show(scene, look, reflects)
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

    def show(self, scene: Scene, look: Look, reflects: bool) -> None:
        viewer = np.asarray(self._client.camera.position, float)
        visible = reflects and in_front(scene.pane, viewer)
        moved = self._viewer is None or not np.array_equal(viewer, self._viewer)
        if visible and (moved or look.sim_state is not self._shown):
            self._shown = look.sim_state
            if self._pane_view is None or moved:
                self._pane_view, self._viewer = PaneEye(scene, viewer), viewer
            picture = self._pane_view.picture(look.sim_state)
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


def _named(scene: Scene, start: str) -> list[int]:
    return [g for g in range(scene.model.ngeom) if scene.model.geom(g).name.startswith(start)]


def _rgb(colour: Any) -> tuple[int, int, int]:
    red, green, blue = (round(255 * float(c)) for c in colour[:3])
    return red, green, blue
