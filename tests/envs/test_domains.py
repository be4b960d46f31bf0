import json

import pytest

from puorl.core.errors import ConfigError
from puorl.envs import bodies, domains
from puorl.envs.domains import DomainSpec, Shift, domain, negatives, parse_domain
from puorl.envs.simulator import Simulator

LINES = ("gravity=0.5", "mass:torso=2", "friction=0.4", "strength=0.5", "body_mass+joint_noise:all")


@pytest.mark.parametrize("name", [*domains.names(), *LINES])
@pytest.mark.parametrize("body", bodies.names())
def test_every_domain_builds_and_survives_json(body, name):
    spec = domain(body, name)
    assert DomainSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert parse_domain(spec.text) == spec
    assert len({spec, domain(body, name)}) == 1
    with Simulator([spec], seed=0, threads=1) as simulator:
        assert simulator.obs.shape == (1, bodies.body(body).obs_dim)


def test_body_mass_halves_the_foot_that_the_shift_names():
    # Half of 5.0894 (hopper), 2.9405 (walker2d's left foot) and 1.0692 (halfcheetah's back foot).
    for body, foot, half in (
        ("hopper", "foot", 2.5447),
        ("walker2d", "foot_left", 1.47027),
        ("halfcheetah", "bfoot", 0.5346),
    ):
        model = Simulator([domain(body, "body_mass")], seed=0, threads=1).models[0]
        assert model.body(foot).mass[0] == pytest.approx(half, abs=6e-5)


def test_names_are_canonical():
    assert domain("hopper", " gravity=.50 + broken:leg ").name == "gravity=0.5+broken:leg_joint"
    assert domain("hopper", "gravity=.5") == domain("hopper", "gravity=0.50")
    assert parse_domain("hopper") == domain("hopper", "nominal")
    assert domain("hopper").masses == "d4rl"
    assert domain("hopper", masses="current") != domain("hopper")


def test_unknown_domains_list_the_known():
    known = "nominal, body_mass, joint_noise, reward, or shifts such as .*mass:foot=2.*got 'wind'"
    with pytest.raises(ConfigError, match=known):
        domain("hopper", "wind")
    with pytest.raises(ConfigError, match="halfcheetah, hopper, walker2d"):
        parse_domain("ant/nominal")
    with pytest.raises(ConfigError, match="not one domain but several .*domains.negatives"):
        domain("hopper", "mixture")
    with pytest.raises(ConfigError, match="masses"):
        domain("hopper", masses="new")


@pytest.mark.parametrize(
    "content",
    [
        {"body": "hopper", "name": "x"},
        {"body": "hopper", "name": "x", "shifts": [{"kind": "mass"}]},
        {"body": "hopper", "name": "x", "shifts": [], "colour": "red"},
        {
            "body": "ant",
            "name": "x",
            "shifts": [{"kind": "gravity", "target": "all", "value": 1.0}],
        },
        {
            "body": "hopper",
            "name": "x",
            "shifts": [{"kind": "mass", "target": "wing", "value": 1.0}],
        },
        {"body": "hopper", "name": "x", "shifts": [], "masses": "new"},
        {"body": "ant", "name": "x", "shifts": []},
    ],
)
def test_broken_dictionaries_are_refused(content):
    with pytest.raises(ConfigError):
        DomainSpec.from_dict(content)


def test_mixture_is_half_and_half_of_the_negative_quality():
    found = negatives("mixture", "hopper", "medium-expert", "random")
    assert [(n.domain.name, n.quality, n.proportion) for n in found] == [
        ("body_mass", "random", 0.5),
        ("joint_noise", "random", 0.5),
    ]


def test_mixture_as_released_takes_noise_rows_of_the_positive_quality():
    # Files of 1M (random) and 2M rows (medium-expert) were pooled: one part to two.
    found = negatives("mixture_as_released", "hopper", "medium-expert", "random")
    assert [(n.domain.name, n.quality) for n in found] == [
        ("body_mass", "random"),
        ("joint_noise", "medium-expert"),
    ]
    assert found[0].proportion == pytest.approx(1 / 3)
    assert sum(n.proportion for n in found) == 1.0
    equal = negatives("mixture_as_released", "hopper", "medium", "random")
    assert [(n.quality, n.proportion) for n in equal] == [("random", 0.5), ("medium", 0.5)]


def test_entire_body_and_single_shifts():
    (walker,) = negatives("entire_body", "halfcheetah", "medium", "random")
    assert walker == (domain("walker2d"), "random", 1.0)
    (single,) = negatives("gravity=0.5", "hopper", "medium", "random")
    assert single.domain.shifts == (Shift("gravity", "all", 0.5),)
    with pytest.raises(ConfigError, match="expected the positive body halfcheetah"):
        negatives("entire_body", "hopper", "medium", "random")
    with pytest.raises(ConfigError, match="got 'wind'"):
        negatives("wind", "hopper", "medium", "random")
