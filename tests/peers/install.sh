#!/bin/sh
# Installs the real peers of the tests (baresip, SIPp, Kamailio, Chromium) and the compiler that pesq needs, as Debian
# packages.
# Where that is not possible it says what is left out and how to add it, and lets the tests go on.
packages=""
command -v baresip >/dev/null 2>&1 || packages="$packages baresip-core"
command -v sipp >/dev/null 2>&1 || packages="$packages sip-tester"
command -v kamailio >/dev/null 2>&1 || packages="$packages kamailio kamailio-tls-modules"
command -v chromium >/dev/null 2>&1 || packages="$packages chromium"
command -v cc >/dev/null 2>&1 || packages="$packages gcc libc6-dev"
[ -z "$packages" ] && exit 0

say_how() {
    echo "left out:$packages (the tests with these peers are skipped). To add them: apt-get install$packages"
    exit 0
}
command -v apt-get >/dev/null 2>&1 || say_how
if [ "$(id -u)" = 0 ]; then
    run=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    run="sudo -n"
else
    say_how
fi
echo "installing$packages"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
$run apt-get -qq update >/dev/null && $run apt-get -qq install -y --no-install-recommends $packages >/dev/null || say_how
