"""Stand in for srun: record the arguments in a file, and start the command after the options once per task.

Slurm's variables tell each task its rank, as on two hosts.
"""

import json
import os
import subprocess
import sys

record, *words = sys.argv[1:]
options = [word for word in words if word.startswith("--")]
command = words[len(options) :]
with open(record, "w") as stream:
    json.dump({"options": options, "command": command, "key": os.environ["POPRUN_PY_KEY"]}, stream)
tasks = int(next(word for word in options if word.startswith("--ntasks=")).partition("=")[2])
children = []
for rank in range(tasks):
    environment = dict(os.environ, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank % 2))
    children.append(subprocess.Popen(command, env=environment, cwd="/"))
sys.exit(max(child.wait() for child in children))
