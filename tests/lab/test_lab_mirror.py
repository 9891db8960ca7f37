"""The switches of the lab's mirror, and a stranger at the door, without a browser."""

import dataclasses
import http.client
import logging
from collections.abc import Iterator

import pytest
from lab_tabs import open_lab

from mirrormark.envs.mirror import MirrorConfig
from mirrormark.exam import candidates
from mirrormark.lab.session import Agents, Session
from mirrormark.training.weights import describe, save_snapshot

pytest.importorskip("viser", reason="the lab's page needs viser (pip install 'mirrormark[lab]')")

GREW_UP_WITH = MirrorConfig(
    "delayed", delay_control_steps=10, distance_m=0.1812, yaw_rad=0.1, pitch_rad=-0.03
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    folder = tmp_path_factory.mktemp("lab")
    candidate = candidates.untrained("smoke")
    setup = dataclasses.replace(candidate.setup, mirror=GREW_UP_WITH)
    grown = save_snapshot(
        folder / "snapshots", "step-1", candidate.agent, describe(candidate.agent, setup, seed=3)
    )
    with open_lab(Session(Agents([grown], preset="smoke"), "infant"), folder) as page:
        yield page


def test_a_head_request_leaves_no_traceback_in_the_log(lab, caplog: pytest.LogCaptureFixture):
    """The first request of all: viser is silent about strangers only after a page has been asked for."""
    with caplog.at_level(logging.ERROR):
        asking = http.client.HTTPConnection("localhost", lab.port, timeout=20)
        asking.request("HEAD", "/")
        with pytest.raises(http.client.RemoteDisconnected):
            asking.getresponse()
        asking.close()
        asking.request("GET", "/")
        assert asking.getresponse().status == 200
        asking.close()
    assert not caplog.records


def test_the_switches_show_the_mirror_it_grew_up_with(lab):
    controls = lab.panel.controls
    assert lab.session.world.mirror == GREW_UP_WITH
    assert controls.delay.value == 0.5 and controls.delay.visible
    assert (controls.distance.value, controls.yaw.value, controls.pitch.value) == (0.181, 6, -2)


def test_only_the_switch_that_was_turned_changes_the_mirror(lab):
    controls = lab.panel.controls
    assert lab.panel.wanted_mirror() == GREW_UP_WITH
    controls.distance.value = 0.2
    assert lab.panel.wanted_mirror() == dataclasses.replace(GREW_UP_WITH, distance_m=0.2)
    controls.delay.value = 1.0
    assert lab.panel.wanted_mirror().delay_control_steps == 20
    controls.kind.value = "present"
    wanted = lab.panel.wanted_mirror()
    assert wanted.delay_control_steps == 0 and (wanted.yaw_rad, wanted.pitch_rad) == (0.1, -0.03)
    lab.panel.follow_mirror()
    assert lab.panel.wanted_mirror() == GREW_UP_WITH
