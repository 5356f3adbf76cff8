#!/usr/bin/env bash
# part.sh NAME COMMAND...: runs a part of the check, and adds its seconds to the file PARTS.
name=$1; shift
echo "== $name"
start=$SECONDS
"$@"
code=$?
echo "$((SECONDS - start)) $name" >> "${PARTS:-/dev/null}"
exit $code
