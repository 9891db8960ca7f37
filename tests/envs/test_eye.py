"""The eye against reflections computed by hand, and what each kind of mirror shows."""

import numba
import numpy as np
import pytest

from mirrormark.envs.raycaster import cpu
from mirrormark.envs.raycaster.eye import (
    ABSENT,
    COVERED,
    MARK,
    MIRRORED,
    NO_CELL,
    PANE,
    Camera,
    Eye,
    camera_at,
    mark_pixels,
    mirror_share,
    no_marks,
    panes_of,
    render,
)
from mirrormark.envs.raycaster.placement import ON_PANE

from .eye_envs import FORWARD_CAMERA, body_poses, own_eye, random_envs, random_qpos, toy, toy_poses

BALL = '<geom name="ball" type="sphere" size=".02" pos="{}"/>'
NO_KEY = np.zeros(1, np.uint64)


@pytest.mark.parametrize(
    ("pane_axes", "ball", "u", "v"),
    [
        # Facing the eye: the image of (0.5, 0.2, 0.1) stands at (1.5, 0.2, 0.1).
        ("0 -1 0 0 0 1", "0.5 0.2 0.1", -0.2 / 1.5, 0.1 / 1.5),
        # Turned 45 degrees about z, the pane swaps x - 1 and y: (1.1, 0.5, 0.2) appears at (1.5, 0.1, 0.2).
        ("-1 -1 0 0 0 1", "1.1 0.5 0.2", -0.1 / 1.5, 0.2 / 1.5),
        # Tipped 45 degrees, it swaps x - 1 and z: (0.9, 0.1, 0.5) appears at (1.5, 0.1, -0.1).
        ("0 -1 0 1 0 1", "0.9 0.1 0.5", -0.1 / 1.5, -0.1 / 1.5),
    ],
)
def test_a_point_is_seen_where_its_reflection_must_be(pane_axes, ball, u, v):
    model = toy(BALL.format(ball), pane_axes)
    labels = Eye(model, FORWARD_CAMERA, 200, 200).segment(*toy_poses(model))[0]
    rows, columns = np.nonzero(labels == MIRRORED)  # the ball is row 0 of the geoms
    assert len(rows) > 3
    assert columns.mean() + 0.5 == pytest.approx(100 + 100 * u, abs=0.5)
    assert rows.mean() + 0.5 == pytest.approx(100 - 100 * v, abs=0.5)


def test_left_stays_left_in_the_mirror():
    """A red ball on the body's left is left in the mirror; one who faces the body sees it on the right."""
    balls = '<geom type="sphere" size=".05" pos="0 .2 0" rgba="1 0 0 1"/>'
    balls += '<geom type="sphere" size=".05" pos="0 -.2 0" rgba="0 0 1 1"/>'
    model = toy(balls)
    image = Eye(model, FORWARD_CAMERA, 64, 64).render(*toy_poses(model), NO_KEY, 0)[0].astype(int)
    red, blue = image[..., 0] - image[..., 2] > 50, image[..., 2] - image[..., 0] > 50
    assert np.nonzero(red)[1].max() < 32 <= np.nonzero(blue)[1].min()
    facing = Eye(model, camera_at((0.9, 0, 0), (0, 0, 0), np.pi / 2), 64, 64).segment(*toy_poses(model))[0]
    assert np.nonzero(facing == 0)[1].min() >= 32 > np.nonzero(facing == 1)[1].max()


def test_the_mirror_shows_the_flipped_view_of_one_who_stands_behind_it():
    """The pane shows, flipped, what a true camera at the eye's reflected place sees without a pane."""
    scene, envs = random_envs("infant", 4)
    eye = own_eye(scene, sky_rgb=(0, 0, 0))
    labels, image = eye.segment(*envs), eye.render(*envs, np.zeros(4, np.uint64), 0)
    gone = panes_of(scene.model, 4, ABSENT)
    gone = gone._replace(centre=gone.centre - 50.0)
    for w in range(4):
        n, c = scene.pane.mat[:, 2], scene.pane.centre
        flip = np.eye(3) - 2 * np.outer(n, n)
        b = eye.camera.body
        place = envs.xpos[w, b] + envs.xmat[w, b] @ eye.camera.pos
        axes = flip @ envs.xmat[w, b] @ eye.camera.mat * (-1, 1, 1)  # the flipped right keeps it right-handed
        behind = Camera(0, c + flip @ (place - c), axes, eye.camera.fovy_rad)
        plain = Eye(scene.model, behind, mark_in_direct_view=True, sky_rgb=(0, 0, 0))
        view = plain.render(*envs._replace(panes=gone).only(w), NO_KEY, 0)[0][:, ::-1]
        mirror = labels[w] >= MIRRORED
        assert mirror.sum() > 200
        assert (np.abs(view[mirror].astype(int) - image[w][mirror]).max(axis=1) > 2).mean() < 0.005


@pytest.mark.parametrize("kind", [ABSENT, COVERED])
def test_without_a_mirror_nothing_of_it_is_seen(kind):
    scene, envs = random_envs("infant", 8)
    eye, keys = own_eye(scene), np.zeros(8, np.uint64)
    panes = panes_of(scene.model, 8, kind)
    blind = envs._replace(panes=panes)
    labels = eye.segment(*blind)
    assert mirror_share(eye.segment(*envs)).max() > 0.3
    assert not (labels >= MIRRORED).any()
    assert not (labels == MARK).any()
    assert (labels == PANE).any()
    bare = blind._replace(marks=no_marks(8), mirror_xpos=envs.mirror_xpos + 0.1)
    assert np.array_equal(eye.render(*blind, keys), eye.render(*bare, keys))


def test_an_absent_mirror_looks_like_wall_and_has_no_frame():
    scene, envs = random_envs("infant", 8)
    eye = own_eye(scene)
    frame = np.nonzero(eye.geoms.body == ON_PANE)[0]
    assert np.isin(eye.segment(*envs), frame).any()
    assert np.isin(eye.segment(*envs._replace(panes=panes_of(scene.model, 8, COVERED))), frame).any()
    absent = envs._replace(panes=panes_of(scene.model, 8, ABSENT))
    labels, image = eye.segment(*absent), eye.render(*absent, np.zeros(8, np.uint64), 0)
    assert not np.isin(labels, frame).any()
    wall = [i for i, g in enumerate(eye.geoms.id) if scene.model.geom(g).name == "room_front"]
    assert np.array_equal(np.unique(image[labels == PANE], axis=0), np.unique(image[labels == wall], axis=0))


def test_a_delayed_mirror_shows_the_past_and_the_eye_the_present():
    """Same neck, other arms: the camera does not move, so the two images can be compared pixel by pixel."""
    scene, _ = random_envs("infant", 1)
    past, now = random_qpos(scene, 6, 1), random_qpos(scene, 6, 2)
    neck = [scene.model.joint(j.name).qposadr[0] for j in scene.joints if j.name.startswith("neck")]
    past[:, neck] = now[:, neck] = 0.0
    old, new = body_poses(scene.model, past), body_poses(scene.model, now)
    eye, keys, panes = own_eye(scene), np.zeros(6, np.uint64), panes_of(scene.model, 6)
    marks = no_marks(6)
    delayed = eye.render(*new, *old, panes, marks, keys)
    before, after = eye.render(*old, *old, panes, marks, keys), eye.render(*new, *new, panes, marks, keys)
    was, is_now = (eye.segment(*p, *p, panes, marks) >= MIRRORED for p in (old, new))
    assert np.array_equal(delayed[~is_now], after[~is_now])
    assert np.array_equal(delayed[is_now & was], before[is_now & was])
    assert not np.array_equal(delayed[is_now & was], after[is_now & was])


@pytest.mark.parametrize("name", ["infant", "arm"])
def test_the_own_mark_and_head_are_seen_only_in_the_mirror(name):
    scene, envs = random_envs(name, 200)
    eye = own_eye(scene)
    labels = eye.segment(*envs)
    head = np.nonzero(eye.geoms.body == scene.eye_body_id)[0]
    assert len(head) > 0
    assert not np.isin(labels, [*head, MARK]).any()
    assert np.isin(labels, head + MIRRORED).any()
    assert (mark_pixels(labels) > 0).mean() > 0.3
    stranger = Eye(scene.model, camera_at((0.2, 0.3, 0.3), (0, 0, 0), 0.9), 64, 64).segment(*envs)
    assert (stranger == MARK).any()


def test_a_mark_that_the_mirror_does_not_show_is_not_seen():
    scene, envs = random_envs("infant", 8)
    hidden = envs.marks._replace(shown_mirror=np.zeros(8, bool))
    assert mark_pixels(own_eye(scene).segment(*envs)).max() > 4
    assert mark_pixels(own_eye(scene).segment(*envs._replace(marks=hidden))).max() == 0


def toy_mark(pos):
    """Facing the pane."""
    towards = np.array([[[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]]])
    shown = np.ones(1, bool)
    return no_marks(1)._replace(
        pos=np.array([pos]), mat=towards, radius_m=np.full(1, 0.1), shown_mirror=shown
    )


@pytest.mark.parametrize(
    ("pos", "cell"),
    [
        ((0.0, 0.0, 0.0), 7 * 15 + 7),  # straight ahead: the middle
        ((0.0, 1.0, 0.0), 7 * 15 + 2),  # met on the pane 0.5 left of its middle, of 0.8 to its edge
        ((0.0, 0.0, 1.0), 2 * 15 + 7),  # 0.5 above
        ((0.0, -1.0, -1.0), 12 * 15 + 12),
    ],
)
def test_the_cell_tells_where_on_the_pane_the_mark_is_seen(pos, cell):
    model = toy(BALL.format("-5 0 0"))
    eye = Eye(model, FORWARD_CAMERA, 64, 64)
    poses = toy_poses(model, toy_mark(pos))
    assert eye.mark_cell(*poses)[0] == cell
    covered = toy_poses(model, toy_mark(pos), COVERED)
    assert eye.mark_cell(*covered)[0] == NO_CELL


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("body", ["infant", "arm"])
def test_the_mark_is_found_where_the_pixels_show_it(body, threads, monkeypatch):
    """The symbolic eye casts only the rays near the mark: as many meet it, in the same places."""
    scene, envs = random_envs(body, 96)
    monkeypatch.setattr(numba, "get_num_threads", lambda: threads)
    eye = own_eye(scene)
    shown = eye.segment(*envs) == MARK + MIRRORED
    state = eye._state(*envs, np.zeros(96, np.uint64))
    count, u, v = cpu.find_mark(eye._static, state).T
    np.testing.assert_array_equal(count, shown.sum((1, 2)))
    np.testing.assert_allclose(u, (shown * eye._static.columns).sum((1, 2)), atol=1e-5)
    np.testing.assert_allclose(v, (shown * eye._static.rows[:, None]).sum((1, 2)), atol=1e-5)
    assert (count > 0).sum() > 20 and (count == 0).sum() > 0


def test_bytes_depend_neither_on_the_number_of_envs_nor_of_threads():
    scene, envs = random_envs("infant", 5)
    eye, keys = own_eye(scene), np.arange(5, dtype=np.uint64)
    together = eye.render(*envs, keys)
    alone = np.concatenate([eye.render(*envs.only(w), keys[w : w + 1]) for w in range(5)])
    assert np.array_equal(together, alone)
    wide = own_eye(scene, 96, 130)
    threads = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        serial = wide.render(*envs.only(0), NO_KEY), eye.render(*envs, keys)
    finally:
        numba.set_num_threads(threads)
    assert np.array_equal(serial[0], wide.render(*envs.only(0), NO_KEY))
    assert np.array_equal(serial[1], together)


def test_noise_is_reproducible_symmetric_and_its_own():
    scene, envs = random_envs("infant", 2)
    eye = own_eye(scene)
    two = np.array([7, 8], np.uint64)
    clean, noisy = eye.render(*envs, two, 0).astype(int), eye.render(*envs, two).astype(int)
    added = (noisy - clean)[(clean >= 2) & (clean <= 253)]
    share = np.bincount(added + 2, minlength=5) / len(added)
    assert np.all(np.abs(share - 0.2) < 0.015)
    assert np.array_equal(noisy, eye.render(*envs, two))
    assert not np.array_equal(noisy - clean, eye.render(*envs, two + 1) - clean)
    first, second = (noisy - clean)[:, :, :, 0].ravel(), (noisy - clean)[:, :, :, 1].ravel()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.04
    assert eye.render(*envs, two).dtype == np.uint8


def test_biased_noise_is_the_public_codes():
    """D17: {-2..1}, so that frames are darker by half a level on average."""
    scene, envs = random_envs("infant", 2)
    eye, two = own_eye(scene), np.array([7, 8], np.uint64)
    clean = eye.render(*envs, two, 0).astype(int)
    added = (eye.render(*envs, two, 2, True) - clean)[(clean >= 2) & (clean <= 253)]
    share = np.bincount(added + 2, minlength=5) / len(added)
    assert np.all(np.abs(share[:4] - 0.25) < 0.015) and share[4] == 0


def test_a_third_person_sees_the_mirror_too():
    scene, envs = random_envs("infant", 1)
    camera = camera_at((-0.40, -0.20, 0.34), (0.24, 0.0, 0.05), 0.7)
    assert mirror_share(Eye(scene.model, camera, 64, 48).segment(*envs))[0] > 0.02
    image = render(scene.model, camera, envs.xpos, envs.xmat, envs.panes, envs.marks, 64, 48)
    assert image.shape == (1, 48, 64, 3) and image.dtype == np.uint8


def test_bad_input_is_named():
    scene, envs = random_envs("infant", 2)
    with pytest.raises(ValueError, match="device 'tpu'"):
        own_eye(scene, device="tpu")
    with pytest.raises(ValueError, match="width is 0: give a whole number of pixels"):
        own_eye(scene, 0, 8)
    eye = own_eye(scene, 8, 8)
    with pytest.raises(ValueError, match="xpos has shape"):
        eye.segment(*envs._replace(xpos=envs.xpos[:, :2]))
    with pytest.raises(ValueError, match="marks has 3 rows"):
        eye.segment(*envs._replace(marks=no_marks(3)))
    mesh = toy('<geom type="sphere" size=".1" rgba="1 0 0 1"/>')
    mesh.vis.headlight.diffuse[:] = 1
    with pytest.raises(ValueError, match="headlight"):
        Eye(mesh, FORWARD_CAMERA)
