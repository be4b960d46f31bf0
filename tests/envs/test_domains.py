import json

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import ConfigError
from puorl.envs import bodies, domains
from puorl.envs.bodies import load_model, names
from puorl.envs.domains import (
    REWARD_TERMS,
    SHIFT_KINDS,
    DomainSpec,
    Shift,
    apply_physics,
    domain,
    negatives,
    noise_width,
    parse_domain,
    parse_shift,
    reward_factors,
)
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
    known = "nominal, body_mass, .*, morphology, or shifts such as .*mass:foot=2.*got 'wind'"
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


# ------------------------------------------------------------------------------------------ shifts


HOPPER = bodies.body("hopper")


def shifted(text: str, robot=HOPPER):
    model = load_model(robot)
    apply_physics(model, robot, [parse_shift(text, robot)])
    return model


@st.composite
def any_shift(draw):
    robot = bodies.body(draw(st.sampled_from(names())))
    kind = draw(st.sampled_from(SHIFT_KINDS))
    targets = {
        "mass": ["all", *robot.links],
        "strength": ["all", *robot.joints],
        "broken": robot.joints,
        "range": ["all", *robot.joints],
        "size": ["all", *robot.links],
        "joint_noise": ["last", "all", *robot.joints],
        "reward": REWARD_TERMS,
    }
    target = draw(st.sampled_from(targets.get(kind, ["all"])))
    value = draw(st.floats(1e-3, 1e3)) if kind != "broken" else 0.0
    return robot, Shift(kind, target, value)


@given(any_shift())
def test_text_reads_back(case):
    robot, shift = case
    assert parse_shift(shift.text, robot) == shift


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mass:foot=2", Shift("mass", "foot", 2.0)),
        ("mass=1.5", Shift("mass", "all", 1.5)),
        ("gravity=0", Shift("gravity", "all", 0.0)),
        ("strength:foot=0.5", Shift("strength", "foot_joint", 0.5)),
        ("broken:leg_joint", Shift("broken", "leg_joint", 0.0)),
        ("joint_noise", Shift("joint_noise", "last", 0.05)),
        ("joint_noise:all", Shift("joint_noise", "all", 0.05)),
        ("joint_noise=0.1", Shift("joint_noise", "last", 0.1)),
        ("reward:backward", Shift("reward", "forward", -1.0)),
        (" mass : foot = 2 ", Shift("mass", "foot", 2.0)),
    ],
)
def test_short_forms(text, expected):
    assert parse_shift(text, HOPPER) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wind=2", "expected one of mass, gravity, .* got 'wind'"),
        ("mass:wing=2", "torso, thigh, leg, foot for hopper, got 'wing'"),
        ("strength:ankle=0.5", "thigh_joint, leg_joint, foot_joint for hopper, got 'ankle'"),
        ("broken", "thigh_joint, leg_joint, foot_joint"),
        ("broken:foot=0.5", "broken takes no value"),
        ("mass:foot", "expected a factor"),
        ("mass:foot=0", "above 0"),
        ("gravity=-1", "of 0 or more"),
        ("gravity=heavy", "finite number"),
        ("gravity=nan", "finite number"),
        ("gravity:foot=1", "gravity of one of all"),
        ("reward:speed=2", "forward, control, healthy"),
    ],
)
def test_impossible_shifts_say_what_is_possible(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_shift(text, HOPPER)


def test_mass_scales_inertia_and_what_follows_from_it():
    nominal, model = load_model(HOPPER), shifted("mass:foot=0.5")
    foot = model.body("foot").id
    factor = np.ones(model.nbody)
    factor[foot] = 0.5
    np.testing.assert_array_equal(model.body_mass, nominal.body_mass * factor)
    np.testing.assert_array_equal(model.body_inertia, nominal.body_inertia * factor[:, None])
    assert model.body_subtreemass[0] == pytest.approx(model.body_mass.sum(), rel=1e-12)
    assert (model.body_invweight0[foot] > nominal.body_invweight0[foot]).all()


def test_other_physics_touch_their_own_quantity():
    nominal = load_model(HOPPER)
    assert shifted("gravity=0.5").opt.gravity.tolist() == [0, 0, -9.81 * 0.5]
    np.testing.assert_array_equal(
        shifted("friction=0.4").geom_friction, nominal.geom_friction * 0.4
    )
    assert shifted("strength:leg=0.5").actuator_gear[:, 0].tolist() == [200, 100, 200]
    assert shifted("strength=2").actuator_gear[:, 0].tolist() == [400, 400, 400]
    assert shifted("broken:thigh").actuator_gear[:, 0].tolist() == [0, 200, 200]
    for text in ("gravity=0.5", "friction=0.4", "strength=2"):
        np.testing.assert_array_equal(shifted(text).body_mass, nominal.body_mass)


def test_a_joints_range_and_a_links_size():
    nominal, narrow = load_model(HOPPER), shifted("range:foot=0.3")
    foot = narrow.joint("foot_joint").id
    factor = np.ones((nominal.njnt, 1))
    factor[foot] = 0.3
    np.testing.assert_array_equal(narrow.jnt_range, nominal.jnt_range * factor)
    small, link = shifted("size:foot=0.7"), nominal.body("foot").id
    shapes = nominal.geom_bodyid == link
    assert shapes.sum() == 1
    np.testing.assert_allclose(small.geom_size[shapes], 0.7 * nominal.geom_size[shapes])
    np.testing.assert_array_equal(small.geom_size[~shapes], nominal.geom_size[~shapes])
    # Mass as the volume, inertia as mass times the square of the length.
    assert small.body_mass[link] == pytest.approx(0.7**3 * nominal.body_mass[link])
    np.testing.assert_allclose(small.body_inertia[link], 0.7**5 * nominal.body_inertia[link])
    assert small.body_subtreemass[0] == pytest.approx(small.body_mass.sum(), rel=1e-12)


@pytest.mark.parametrize("body", bodies.names())
def test_named_shifts_change_how_a_body_moves(body):
    action = np.random.default_rng(0).uniform(-1, 1, (40, 1, bodies.body(body).act_dim))
    action[:, :, -1] = 1.0  # to the end of the last joint's range
    ends = {}
    for name in ("nominal", "gravity", "friction", "kinematic", "morphology"):
        with Simulator([domain(body, name)], seed=0, threads=1, auto_reset=False) as simulator:
            for each in action:
                simulator.step(each)
            ends[name] = simulator.obs[0]
    for name in list(ends)[1:]:
        assert np.abs(ends[name] - ends["nominal"]).max() > 1e-3, name


def test_noise_width_and_reward_factors():
    assert noise_width(HOPPER, [parse_shift("joint_noise", HOPPER)]).tolist() == [0, 0, 0.05]
    assert noise_width(HOPPER, [parse_shift("joint_noise:all=0.1", HOPPER)]).tolist() == [0.1] * 3
    assert noise_width(HOPPER, [parse_shift("joint_noise:thigh=0.1", HOPPER)]).tolist() == [
        0.1,
        0,
        0,
    ]
    assert noise_width(HOPPER, [parse_shift("gravity=2", HOPPER)]).tolist() == [0, 0, 0]
    shifts = [parse_shift(t, HOPPER) for t in ("reward:backward", "reward:control=0.5")]
    assert reward_factors(shifts) == (-1.0, 0.5, 1.0)


@pytest.mark.parametrize("name", names())
def test_friction_reaches_the_contacts(name):
    robot = bodies.body(name)
    found = []
    for model in (load_model(robot), shifted("friction=0.25", robot)):
        data = mujoco.MjData(model)
        data.qpos[1] = -10.0  # under the floor, so that every link touches it
        mujoco.mj_fwdPosition(model, data)
        found.append(data.contact.friction.copy())
    assert len(found[0]) > len(robot.links)
    np.testing.assert_array_equal(found[1], found[0] * 0.25)
