#!/bin/sh
# node.sh COMMAND...: become a node of a job whose network is disturbed. Every connection that it opens is marked with
# 10000 + its process's number, by which rules tell the links apart: all nodes have one address. The group's number is
# how the kernel tells whose packet it is; a process that changes it must be tied to its launcher again.
set -eu
mark=$((10000 + $$))
iptables -w -A OUTPUT -p tcp --syn -m owner --gid-owner "$mark" -j CONNMARK --set-mark "$mark"
exec setpriv --regid "$mark" --clear-groups --pdeathsig KILL "$@"
