"""Print the host, and what HWLOC_XMLFILE is for the hydra_pmi_proxy above this process, and for this process."""

import os
from pathlib import Path

pid = os.getpid()
while Path(f"/proc/{pid}/comm").read_text().strip() != "hydra_pmi_proxy":
    pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
environment = dict(word.split("=", 1) for word in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in word)
print(os.uname().nodename, *(repr(environ.get("HWLOC_XMLFILE")) for environ in (environment, os.environ)))
