import mujoco
import numpy as np
import pytest

from puorl.core.errors import ConfigError
from puorl.envs import bodies

# Masses of mujoco-py's time, and today's (both from the geometry, to four digits).
MASSES = {
    "hopper": {
        "torso": (3.5343, 3.6652),
        "thigh": (3.9270, 4.0579),
        "leg": (2.7143, 2.7814),
        "foot": (5.0894, 5.3156),
    },
    "walker2d": {"foot": (2.9405, 3.1667), "foot_left": (2.9405, 3.1667)},
    "halfcheetah": {
        "bthigh": (1.5352, 1.5435),
        "bshin": (1.5809, 1.5874),
        "bfoot": (1.0692, 1.0954),
        "fthigh": (1.4256, 1.4381),
        "fshin": (1.1789, 1.2008),
        "ffoot": (0.8499, 0.8845),
    },
}


@pytest.mark.parametrize("body", bodies.names())
def test_masses_of_both_times(body):
    for column, masses in enumerate(("d4rl", "current")):
        model = bodies.load_model(bodies.body(body), masses)
        for link, expected in MASSES[body].items():
            assert model.body(link).mass[0] == pytest.approx(expected[column], abs=6e-5)
    if body == "halfcheetah":
        for masses in ("d4rl", "current"):
            model = bodies.load_model(bodies.body(body), masses)
            assert model.body_mass.sum() == pytest.approx(14.0, abs=1e-12)


@pytest.mark.parametrize("body", bodies.names())
def test_old_masses_scale_the_inertia_of_single_capsules(body):
    old, new = (bodies.load_model(bodies.body(body), masses) for masses in ("d4rl", "current"))
    single = old.body_geomnum == 1
    single[0] = False  # the world
    ratio = (old.body_mass / np.where(new.body_mass > 0, new.body_mass, 1))[single, None]
    np.testing.assert_allclose(
        old.body_inertia[single], new.body_inertia[single] * ratio, rtol=1e-12
    )
    np.testing.assert_allclose(old.body_ipos[single], new.body_ipos[single], atol=1e-12)
    assert not np.allclose(old.body_invweight0, new.body_invweight0)


def test_two_capsules_move_the_centre_of_mass():
    # The head is the shorter capsule: its caps weigh more in the new formula than the torso's.
    old, new = (
        bodies.load_model(bodies.body("halfcheetah"), masses) for masses in ("d4rl", "current")
    )
    for model, cap in ((old, 1.0), (new, 4 / 3)):
        radius = 0.046
        mass = {half: 2 * half + cap * radius for half in (0.5, 0.15)}
        centre = 0.6 * mass[0.15] / sum(mass.values())
        assert model.body("torso").ipos[0] == pytest.approx(centre, abs=1e-12)


@pytest.mark.parametrize("body", bodies.names())
def test_body_describes_its_model(body, capfd):
    robot = bodies.body(body)
    model = bodies.load_model(robot)
    assert tuple(model.body(i).name for i in range(1, model.nbody)) == robot.links
    driven = [model.joint(model.actuator_trnid[i, 0]).name for i in range(model.nu)]
    assert tuple(driven) == robot.joints
    assert (robot.obs_dim, robot.act_dim) == (model.nq - 1 + model.nv, model.nu)
    assert robot.foot in robot.links
    assert np.array_equal(model.actuator_ctrlrange, [[-1, 1]] * model.nu)
    captured = capfd.readouterr()
    assert captured.out == captured.err == "", "loading a model must not print"


def test_current_masses_are_the_stock_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo keeps a log of its warnings in the working folder
    for name in bodies.names():
        robot = bodies.body(name)
        model = bodies.load_model(robot, "current")
        stock = mujoco.MjModel.from_xml_path(str(bodies._assets() / robot.model_file))
        for field in (
            "body_mass",
            "body_inertia",
            "body_ipos",
            "body_invweight0",
            "dof_invweight0",
        ):
            assert np.array_equal(getattr(model, field), getattr(stock, field)), (name, field)


def test_engines_without_spec_delete_are_understood(monkeypatch):
    """Before MuJoCo 3.3.4 an element removed itself."""
    removed = []
    monkeypatch.delattr(mujoco.MjSpec, "delete", raising=False)
    for kind in (mujoco.MjsCamera, mujoco.MjsLight):
        monkeypatch.setattr(kind, "delete", lambda self: removed.append(self), raising=False)
    bodies.load_model(bodies.body("hopper"))
    assert len(removed) > 0


def test_health_is_an_open_interval_and_refuses_nan():
    hopper = bodies.body("hopper")
    qpos = np.zeros((6, 6))
    qpos[:, 1] = [1.25, 0.7, 1.25, 1.25, 1.25, np.nan]
    qpos[:, 2] = [0.0, 0.0, 0.2, -0.19, 0.0, 0.0]
    qvel = np.zeros((6, 6))
    qvel[4, 3] = -100.0
    assert hopper.healthy(qpos, qvel).tolist() == [True, False, False, True, False, False]


def test_observation_hides_x_and_clips_velocities_of_falling_bodies():
    qpos, qvel = np.arange(9.0)[None], np.array([[-20.0, 20.0, *np.zeros(7)]])
    walker, cheetah = (bodies.body(n).observe(qpos, qvel)[0] for n in ("walker2d", "halfcheetah"))
    assert walker.tolist() == [*range(1, 9), -10.0, 10.0, *np.zeros(7)]
    assert cheetah.tolist() == [*range(1, 9), -20.0, 20.0, *np.zeros(7)]


def test_unknown_choices_list_the_known():
    with pytest.raises(ConfigError, match="halfcheetah, hopper, walker2d, got 'ant'"):
        bodies.body("ant")
    with pytest.raises(ConfigError, match="d4rl, current, got 'old'"):
        bodies.load_model(bodies.body("hopper"), "old")
