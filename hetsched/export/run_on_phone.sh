#!/bin/sh
# Runs this bundle's segments on an Android phone, one after another, and brings the profile back:
#
#   sh run_on_phone.sh RUNNER [PROFILE.json]
#   hetsched import PROFILE.json --model MODEL --soc SOC
#
# RUNNER is ONNX Runtime's onnxruntime_perf_test, built for the phone, or a program that takes its options; or a folder with
# onnxruntime_perf_test and the libraries that it needs. RUNS: inferences of each segment. ADB: another adb.
# ANDROID_SERIAL chooses among several phones. The inputs are random: this measures times, run.py compares numbers.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ] || [ ! -e "$1" ]; then
    echo "usage: sh run_on_phone.sh RUNNER [PROFILE.json], where RUNNER is onnxruntime_perf_test for the phone, or its folder" >&2
    exit 2
fi
runner=$1
profile=${2:-profile.json}
runs=${RUNS:-20}
adb=${ADB:-adb}
there=/data/local/tmp/hetsched-bundle
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! "$adb" get-state >"$work/log" 2>&1; then
    echo "there is no phone: $(tail -n 1 "$work/log"); connect one and allow USB debugging" >&2
    exit 1
fi

on_phone() {
    if ! "$adb" "$@" >"$work/log" 2>&1 </dev/null; then
        tail -n 20 "$work/log" >&2
        echo "failed on the phone: adb $1" >&2
        exit 1
    fi
}

# segment INDEX FILE OPTIONS
segment() {
    echo "segment $1: $3"
    libraries="LD_LIBRARY_PATH=$there ADSP_LIBRARY_PATH=$there"
    on_phone shell "cd $there && $libraries ./$name $3 -m times -r $runs -I -p profiles/$1 $2"
}

on_phone shell "rm -rf $there && mkdir -p $there/profiles"
on_phone push "$here/segments" "$there/"
if [ -d "$runner" ]; then
    name=onnxruntime_perf_test
    on_phone push "$runner/." "$there/"
else
    name=$(basename "$runner")
    on_phone push "$runner" "$there/$name"
fi
on_phone shell "chmod 755 $there/$name"
# SEGMENTS
on_phone pull "$there/profiles" "$work/"
python3 "$here/merge_profiles.py" "$work/profiles" "$profile"
on_phone shell "rm -rf $there"
echo "profile: $profile"
