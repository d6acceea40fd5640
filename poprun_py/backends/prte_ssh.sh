#!/bin/sh
# What Open MPI runs instead of ssh: prte_ssh.sh PYTHON SSH [OPTIONS] HOST COMMAND...: starts the guard of its daemon too.
# An environment variable does not pass through ssh, so the job's folder is an argument there.
python=$1 ssh=$2
folder=$POPRUN_PY_FOLDER
case $folder in
*[!A-Za-z0-9_\ .,:/+@%=-]*) folder= ;; # which the remote shell might take for more than a name: the guard keeps no record
esac
guard="$python -I -S ${0%/*/*}/host/daemon_guard.py \"$folder\" &"
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
