#!/bin/sh
# What Open MPI runs instead of ssh: prte_ssh.sh PYTHON SSH [OPTIONS] HOST COMMAND...: starts the guard of its daemon too.
# An environment variable does not pass through ssh, so the job's folder is an argument there.
python=$1 ssh=$2
guard="$python -I -S ${0%/*/*}/host/daemon_guard.py \"$POPRUN_PY_FOLDER\" &"
shift 2
for word; do
    shift
    case $word in
    prted | orted | *[/\;\ ]prted | *[/\;\ ]orted)
        set -- "$@" ${guard:+"$guard"}
        guard=
        ;;
    esac
    set -- "$@" "$word"
done
[ "${ssh##*/}" != ssh ] || set -- -x "$@" # as Open MPI does itself
exec "$ssh" "$@"
