"""`puorl export`: write policies as ONNX, or rows in another format."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from puorl.cli import options as opt
from puorl.core.errors import ConfigError
from puorl.core.files import atomic_path, check_free
from puorl.core.run_folder import partition_folder
from puorl.data.formats import FORMATS, check_target, save
from puorl.data.lazy import FIRST_PART
from puorl.rl.policy import Policy
from puorl.rl.run import read_policies

_ONNX = ".onnx"
_ROWS = tuple(name for name, each in FORMATS.items() if each.writable)


@dataclass(frozen=True)
class Export(opt.Command):
    """Write policies as ONNX, or rows in another format, for other programs.

    A name that ends in .onnx asks for policies: of a folder of puorl train, or of
    policy files. The scaling of states and actions is inside, so that the file
    takes raw states and gives actions in the units of the data. Any other name is
    for rows: of files, or the kept rows of a folder of puorl filter.

    Examples:
      puorl export run/policies/seed-0.safetensors --out policy.onnx
      puorl export run --to onnx --out policies
      puorl export kept --out kept.parquet
      puorl export 'logs/*.csv' --episode trip --to lerobot --out trips
    """

    paths: opt.Paths
    """Folders of puorl train or policy files; or rows, and folders of puorl filter."""
    out: Path
    """File or folder to write."""
    to: Annotated[str, opt.choice("auto", "onnx", *_ROWS)] = "auto"
    """What to write; auto: what the name says."""
    force: opt.Flag = False
    """Replace what is there."""
    data: opt.DataOptions = opt.DataOptions()
    scale: opt.ScaleOptions = opt.ScaleOptions()

    def run(self) -> None:
        """Read, write, and print what was made."""
        is_onnx = self.to == "onnx" or (self.to == "auto" and self.out.suffix == _ONNX)
        made = self._policies() if is_onnx else self._rows()
        self.answer({"files": made}, *(f"{name}: {text}" for name, text in made.items()))

    def _policies(self) -> dict[str, str]:
        members = read_policies(self.paths)
        if self.out.suffix != _ONNX:
            return self._folder([(Path(m.name).stem, m.policy) for m in members])
        if len(members) > 1:
            raise ConfigError(
                f"--out: expected one policy for one file, got {len(members)}; name one of them "
                f"(such as {members[0].name}), or a folder: --to onnx --out policies"
            )
        members[0].policy.to_onnx(self.out, force=self.force)
        return {str(self.out): f"{members[0].policy!r}"}

    def _folder(self, policies: list[tuple[str, Policy]]) -> dict[str, str]:
        names = [name for name, _ in policies]
        if len(set(names)) < len(names):
            raise ConfigError("export: expected policies of different names, got two of one name")
        with atomic_path(self.out, force=self.force, marker=f"{names[0]}{_ONNX}") as part:
            part.mkdir()
            for name, policy in policies:
                policy.to_onnx(part / f"{name}{_ONNX}")
        return {str(self.out / f"{name}{_ONNX}"): f"{policy!r}" for name, policy in policies}

    def _stream(self, reason: str) -> dict[str, str]:
        """Write a folder of Parquet files, partition by partition."""
        from puorl.scale.filtering import SaveRows, collect, run_partitions

        lazy = self.scale.open(self.paths, reason, self.console, **self.data.arguments())
        if self.to not in ("auto", "parquet") or self.out.suffix:
            raise ConfigError(
                "--out: expected the name of a folder of Parquet files, without a suffix, where "
                f"data is read in partitions, got {self.out} (--to {self.to})"
            )
        check_free(self.out, force=self.force, marker=FIRST_PART)
        with partition_folder(self.out, {"data": lazy.fingerprint}) as parts:
            records = run_partitions(
                SaveRows(lazy), lazy, parts, self.scale.make(), "writing", progress=True
            )
            with atomic_path(self.out, force=self.force, marker=FIRST_PART) as part:
                collect(parts, part, ".parquet")
        number = sum(record["num_rows"] for record in records)
        return {str(self.out): f"{number:,} rows in {len(lazy):,} files"}

    def _rows(self) -> dict[str, str]:
        if (reason := self.scale.reason(self.paths)) is not None:
            return self._stream(reason)
        chosen = None if self.to == "auto" else self.to
        if chosen is None:
            check_target(self.out, force=self.force)
        data = self.data.load(self.paths)
        save(data, self.out, format=chosen, force=self.force)
        return {str(self.out): f"{data!r}"}
