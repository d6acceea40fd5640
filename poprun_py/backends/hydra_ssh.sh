#!/bin/sh
# What hydra runs instead of ssh: SSH [OPTIONS] HOST COMMAND..., with an empty HWLOC_XMLFILE before its own program.
# An environment variable does not pass through ssh, and without this one the program leaves a file in /tmp if killed.
for word; do
    shift
    case $word in
    *=*hydra_pmi_proxy*) set -- "$@" "$word" ;; # env would take this path for a variable
    *hydra_pmi_proxy*) set -- "$@" env HWLOC_XMLFILE= "$word" ;;
    *) set -- "$@" "$word" ;;
    esac
done
exec "${POPRUN_PY_SSH:-ssh}" "$@"
