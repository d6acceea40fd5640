"""Same bits: run golden programs as if on other machines, and compare their digests with those in the repository.

    scripts/same-bits                                all programs with all settings, in one table (minutes)
    scripts/same-bits --quick                        the part in the gate: kernels for AVX2 and for this processor
    scripts/same-bits --only 'popart: *' --settings haswell --settings Nehalem
    scripts/same-bits --where 'torch: mlp' haswell   name the first op whose result differs from this processor's
    scripts/same-bits --list                         the programs and the settings
    scripts/same-bits --update                       write the digests of this host to tests/golden/digests.json

A program trains or runs a model from weights and data that are exact on every machine; its digests are of its
losses, results and final weights. They are the same on every x86-64 processor with AVX2 and FMA. A setting compiles
kernels for another processor, lets OpenBLAS, numpy or PyTorch choose other code, or spreads four replicas over
instances; one that this host cannot run is shown as such. The exit code is 1 if a digest differs or a program fails.

If all settings give the same new digests, numerics have changed: where that is intended, update the file, and say in
the commit why. If they differ from each other, the new code depends on the machine: --where names the op.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.golden.catalogue import DIGESTS, PROGRAMS, chosen, golden_digests, write_digests
from tests.golden.op_digests import OPS, first_difference
from tests.golden.runs import Outcome, parts_of, run_part
from tests.golden.settings import KERNELS, NATIVE, SETTINGS, Setting
from tests.golden.table import table

#: The settings of --quick.
QUICK = [NATIVE, KERNELS[0]]


def main() -> int:
    options = parsed()
    names = [name for name in chosen(options.only) if PROGRAMS[name].quick or not options.quick]
    if options.list:
        print(
            "\n".join(
                [*(f"setting  {setting.name}" for setting in SETTINGS), *(f"program  {name}" for name in names)]
            )
        )
        return 0
    if options.where:
        return where(options.where[0], one_setting(options.where[1]))
    settings = [NATIVE] if options.update else QUICK if options.quick else SETTINGS
    settings = [
        setting
        for setting in settings
        if not options.settings or any(pattern in setting.name for pattern in options.settings)
    ]
    if not names or not settings:
        print("same-bits: no program or no setting has this name; --list shows them", file=sys.stderr)
        return 2
    outcomes = run_all(names, [setting for setting in settings if not setting.obstacle()])
    golden = golden_digests()
    if options.update:
        return update(golden, outcomes[NATIVE.name])
    text, is_same = table(names, settings, outcomes, golden)
    print(text)
    return int(not is_same)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/same-bits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few programs, with kernels for two processors")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="programs: a part or a pattern")
    parser.add_argument(
        "--settings", action="append", default=[], metavar="NAME", help="settings: a part of the name"
    )
    parser.add_argument("--where", nargs=2, metavar=("PROGRAM", "SETTING"), help="find the first op that differs")
    parser.add_argument("--list", action="store_true", help="list programs and settings")
    parser.add_argument("--update", action="store_true", help="write the digests of this host to the file")
    return parser.parse_args()


def one_setting(name: str) -> Setting:
    matches = [setting for setting in SETTINGS if name in setting.name]
    if not matches or matches[0].obstacle():
        raise SystemExit(
            f"same-bits: {name}: {matches[0].obstacle() if matches else 'no setting; --list shows them'}"
        )
    return matches[0]


def run_all(names: Sequence[str], settings: Sequence[Setting]) -> dict[str, Outcome]:
    """The outcome of each setting; as many processes run at once as there are cores, and each end is reported."""
    begin = time.monotonic()
    outcomes = {target.name: Outcome({}, {}) for target in settings}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        parts = {
            pool.submit(run_part, target, part): (target, part)
            for target in settings
            for part in parts_of(target, names)
        }
        for number, done in enumerate(as_completed(parts), 1):
            setting, part = parts[done]
            outcome, old = done.result(), outcomes[setting.name]
            outcomes[setting.name] = Outcome({**old.digests, **outcome.digests}, {**old.errors, **outcome.errors})
            share = f"{100 * number // len(parts):3} %  {time.monotonic() - begin:4.0f} s"
            print(f"{share}  {setting.name}: {len(part)} programs, from {part[0]!r}", file=sys.stderr, flush=True)
    return outcomes


def update(golden: Mapping[str, Mapping[str, str]], native: Outcome) -> int:
    for name, error in native.errors.items():
        print(f"{name}: {error}", file=sys.stderr)
    changed = [name for name, digests in native.digests.items() if golden.get(name) != digests]
    write_digests({**golden, **native.digests})
    print("\n".join([*changed, f"{len(changed)} of {len(native.digests)} programs changed in {DIGESTS}"]))
    return int(bool(native.errors))


def where(name: str, setting: Setting) -> int:
    """Print the first op whose result differs between this processor and a setting."""
    if name not in PROGRAMS:
        raise SystemExit(f"same-bits: {name!r}: no program has this name; --list shows them")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, str(number)) for number in range(2)]
        for file, compared in zip(files, (NATIVE, Setting(setting.name, setting.variables)), strict=True):
            for failed, error in run_part(compared, [name], {OPS: str(file)}).errors.items():
                raise SystemExit(f"same-bits: {failed}, {compared.name}: {error}")
        print(f"{name}, {setting.name}: {first_difference(*(file.read_text().splitlines() for file in files))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
