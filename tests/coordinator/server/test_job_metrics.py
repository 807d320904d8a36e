"""What a job tells Prometheus."""

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coordinator.core import events as ev
from coordinator.core.nodes.deaths import GRACE_SECONDS
from coordinator.core.plans.plan import Phase
from coordinator.server import status_view
from coordinator.server.metrics import served
from elastic_ps.core.errors import ConfigurationError
from tests.coordinator.core.plans.test_protection import protecting
from tests.coordinator.played_job import World


def scrape(world):
    with (
        served(lambda: world.state, lambda: world.now, "127.0.0.1", 0) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply,
    ):
        text = reply.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, *(sample.labels[name] for name in sorted(sample.labels))] = sample.value
    return found


def test_a_job_that_was_scaled_and_lost_a_worker():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.settle()
    world.kill(world.node("w0"))
    world.settle()
    found = scrape(world)
    assert found["elastic_phase", "running"] == 1
    assert found["elastic_phase", "rebuilding"] == 0
    assert found["elastic_nodes", "worker", "member"] == found["elastic_wanted_nodes", "worker"] == 3
    assert found["elastic_nodes", "server", "member"] == found["elastic_wanted_nodes", "server"] == 2
    assert found["elastic_plans_total", "COMMITTED", "scale"] == 2, "one that was asked for, and the replacement"
    assert found["elastic_plans_total", "COMMITTED", "death"] == 1
    assert found["elastic_plans_total", "COMMITTED", "start"] == 1
    assert found["elastic_deaths_total",] == 1
    assert found["elastic_moved_bytes_total",] > 0
    assert found["elastic_suspension_seconds",] == 0.0015
    assert found["elastic_plan_seconds", "registration"] >= 0
    assert found["elastic_version",] == world.state.version > 0
    assert found["elastic_term",] == 1


def test_who_has_finished_has_not_died():
    world = World(3, 1)
    world.report(world.node("w1"), finished=True)
    world.kill(world.node("w1"), 0)
    world.launcher()
    world.tick(GRACE_SECONDS + 1)
    world.settle()
    assert scrape(world)["elastic_deaths_total",] == 0


def test_a_server_whose_death_costs_a_restore_has_died_and_the_plan_under_way_is_no_more():
    world = World(2, 1, checkpoint="/ck")
    world.ask(ev.CheckpointAsked)
    manifest = world.saved()
    world.ask(ev.ScaleAsked, 3, 0)
    plan = world.until(Phase.ARMED)
    world.kill(world.node("s0"))
    world.launcher()
    assert scrape(world)["elastic_deaths_total",] == 1
    world.post(ev.CheckpointFound(world.now, manifest.url, manifest.manifest))
    world.settle()
    found = scrape(world)
    assert found["elastic_deaths_total",] == 1, "the others are ended in order"
    assert found["elastic_plans_total", "DROPPED", "scale"] == 1
    (dropped,) = [each for each in status_view.plans(world.state).plans if each.id == plan.id]
    assert dropped.phase == "DROPPED"
    assert "server s0 died" in dropped.reason


def test_a_job_with_replicas_says_how_much_of_it_is_protected():
    world = World(2, 3, replicas=1)
    found = scrape(world)
    assert found["elastic_protected_bytes",] == found["elastic_model_bytes",] > 0
    world.kill(world.node("s1"))
    world.launcher()
    assert scrape(world)["elastic_protected_bytes",] < found["elastic_model_bytes",]


def test_followers_that_are_made_again_are_no_scaling_whose_time_is_shown():
    world = protecting()
    world.until(Phase.ARMED)
    for _ in range(6):
        world.turn()
    assert world.state.history[-1].background
    found = scrape(world)
    assert found["elastic_plans_total", "COMMITTED", "scale"] == 1
    assert ("elastic_suspension_seconds",) not in found
    assert ("elastic_plan_seconds", "migration") not in found


def test_a_job_that_has_ended_trains_no_samples():
    world = World(2, 1)
    for name in ("w0", "w1"):
        world.post(ev.Reported(world.now, name, world.node(name).version, 0.1, 0.01, rate=50.0))
    assert scrape(world)["elastic_samples_per_second",] == 100
    world.ask(ev.StopAsked)
    assert world.state.job.ended
    assert scrape(world)["elastic_samples_per_second",] == 0


def test_a_job_that_has_not_begun():
    found = scrape(World(2, 1, declare=False))
    assert found["elastic_phase", "starting"] == 1
    assert found["elastic_deaths_total",] == 0
    assert ("elastic_suspension_seconds",) not in found
    assert ("elastic_protected_bytes",) not in found


def test_a_port_that_is_taken_is_said():
    world = World(1, 1)
    told = (lambda: world.state), (lambda: world.now), "127.0.0.1"
    with served(*told, 0) as port:
        again = served(*told, port)
        with pytest.raises(ConfigurationError, match=f"--metrics {port}: .*give another port"):
            again.__enter__()
