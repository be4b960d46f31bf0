import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import ConfigError
from puorl.envs.bodies import body, load_model, names
from puorl.envs.domains import (
    REWARD_TERMS,
    SHIFT_KINDS,
    Shift,
    apply_physics,
    noise_width,
    parse_shift,
    reward_factors,
)

HOPPER = body("hopper")


def shifted(text: str, robot=HOPPER):
    model = load_model(robot)
    apply_physics(model, robot, [parse_shift(text, robot)])
    return model


@st.composite
def any_shift(draw):
    robot = body(draw(st.sampled_from(names())))
    kind = draw(st.sampled_from(SHIFT_KINDS))
    targets = {
        "mass": ["all", *robot.links],
        "strength": ["all", *robot.joints],
        "broken": robot.joints,
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
    robot = body(name)
    found = []
    for model in (load_model(robot), shifted("friction=0.25", robot)):
        data = mujoco.MjData(model)
        data.qpos[1] = -10.0  # under the floor, so that every link touches it
        mujoco.mj_fwdPosition(model, data)
        found.append(data.contact.friction.copy())
    assert len(found[0]) > len(robot.links)
    np.testing.assert_array_equal(found[1], found[0] * 0.25)
