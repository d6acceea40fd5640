"""Variables of the supervisor: the environment variables through which the launcher starts its supervisors.

Constants only, so that planning a job imports nothing that runs one. The last two are also in
popdist_py/environment.py: importing popdist_py would delay every supervisor by 10 ms.
"""

#: Where the launcher listens: ``host:port``, or several separated by commas.
ADDRESS_VARIABLE = "POPRUN_PY_CHANNEL"

#: The key of the job, in hexadecimal, by which launcher and supervisor authenticate each other.
KEY_VARIABLE = "POPRUN_PY_KEY"

#: The folders that hold poprun_py and msgpack; host/supervisor_main.py repeats the name, which it needs to import us.
PATH_VARIABLE = "POPRUN_PY_PATH"

#: The name of the variable in which the MPI's process manager gives each process its rank.
RANK_VARIABLE = "POPRUN_PY_RANK_VARIABLE"

#: Those that must reach the supervisors on all hosts.
SUPERVISOR_VARIABLES = (ADDRESS_VARIABLE, KEY_VARIABLE, PATH_VARIABLE, RANK_VARIABLE)

#: The job's own folder, for what reaches other hosts; backends/prte_ssh.sh repeats the name.
FOLDER_VARIABLE = "POPRUN_PY_FOLDER"

#: The folder in which programs keep compiled executables.
EXECUTABLE_CACHE_PATH = "POPDIST_EXECUTABLE_CACHE_PATH"

#: The socket through which a program reports its progress to its supervisor.
REPORT_SOCKET = "POPDIST_REPORT_SOCKET"
