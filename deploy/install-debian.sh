#!/bin/sh
# Installs a server from Debian for the tests that start their own: install-debian.sh PACKAGE; as root.
# The package's command has its name. No system service is started: policy-rc.d says no during the
# installation, and the unit is disabled afterwards.
set -eu

package=$1
if command -v "$package" >/dev/null; then
    echo "$package is installed"
    exit 0
fi

policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends "$package"
if command -v systemctl >/dev/null; then
    systemctl disable "$package" >/dev/null 2>&1 || true
fi
