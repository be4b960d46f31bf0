import signal
import subprocess
import sys

from puorl.bench.runner import Claims

HOLD = """
import sys, time
from pathlib import Path
from puorl.bench.runner import Claims
with Claims(Path(sys.argv[1])).held("a") as mine:
    print(mine, flush=True)
    time.sleep(600)
"""


def test_a_claim_excludes_others_and_ends_with_its_process(tmp_path):
    claims = Claims(tmp_path / "claims")
    command = [sys.executable, "-c", HOLD, str(tmp_path / "claims")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "True\n"
        with claims.held("a") as mine:
            assert not mine
        with claims.held("b") as mine:
            assert mine
        other.send_signal(signal.SIGKILL)
        other.wait()
    with claims.held("a") as mine:
        assert mine
        with claims.held("a") as again:
            assert not again
    with claims.held("a", wait=True) as mine:
        assert mine
