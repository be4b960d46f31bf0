"""`puorl export`: policies as ONNX, rows in other formats."""

import numpy as np
import pytest
from train_rows import train_rows

import puorl
from puorl.cli.main import main
from puorl.rl.policy import Policy


@pytest.fixture
def policies(here):
    rng = np.random.default_rng(0)
    for seed in range(2):
        layers = [{"w": rng.normal(size=(3, 2)), "b": rng.normal(size=2)}]
        made = Policy.of("tanh", layers, mean=[5, 5, 5], metadata={"seed": seed})
        made.save(here / f"seed-{seed}.safetensors")
    return here


def test_a_policy_becomes_a_file_and_several_a_folder(policies, capsys):
    assert main(["export", "seed-0.safetensors", "--out", "policy.onnx"]) == 0
    assert "policy.onnx: Policy(" in capsys.readouterr().out
    both = ["seed-0.safetensors", "seed-1.safetensors"]
    assert main(["export", *both, "--out", "both.onnx"]) == 2
    assert "one policy for one file, got 2" in capsys.readouterr().err
    assert main(["export", *both, "--to", "onnx", "--out", "both"]) == 0
    assert sorted(p.name for p in (policies / "both").iterdir()) == ["seed-0.onnx", "seed-1.onnx"]
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession("both/seed-1.onnx", providers=["CPUExecutionProvider"])
    obs = np.full((1, 3), 4.9, np.float32)
    expected = Policy.load("seed-1.safetensors").act(obs)
    np.testing.assert_allclose(session.run(None, {"obs": obs})[0], expected, atol=1e-5)


def test_rows_are_written_in_another_format(here, capsys):
    rows = train_rows()
    puorl.save(rows, "rows.npz")
    for out, more in (("rows.parquet", ()), ("rows.hdf5", ()), ("robot", ("--to", "lerobot"))):
        assert main(["export", "rows.npz", "--out", out, *more]) == 0
        back = puorl.load(out)
        np.testing.assert_array_equal(back.obs, rows.obs)
        np.testing.assert_array_equal(back.next_obs, rows.next_obs)
        assert main(["export", "rows.npz", "--out", out, *more]) == 2
        assert "already exists" in capsys.readouterr().err
